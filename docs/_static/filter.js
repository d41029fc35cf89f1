// A field above the table of presets, which hides the rows that do not contain all of its words.
document.addEventListener("DOMContentLoaded", () => {
  const table = document.querySelector("#presets > .pst-scrollable-table-container table, #presets > table");
  if (!table) return;
  const field = Object.assign(document.createElement("input"), { type: "search", className: "filter form-control" });
  field.placeholder = field.ariaLabel = "Filter presets, such as: torch hysteresis";
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  });
  (table.closest(".pst-scrollable-table-container") ?? table).before(field);
});
