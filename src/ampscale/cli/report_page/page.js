// Without scripts, the pictures of all gradients are shown one below the other; this shows the selected one.
const select = document.querySelector("#layer");
if (select) {
  const pictures = [...document.querySelectorAll("figure.layer")];
  const show = () => pictures.forEach((picture, index) => { picture.hidden = index !== select.selectedIndex; });
  document.querySelector("#choice").hidden = false;
  select.addEventListener("change", show);
  window.addEventListener("pageshow", show); // a browser may restore the selection
  show();
}
