// A field above the table of presets that hides the rows without its words.
