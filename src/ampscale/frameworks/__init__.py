"""The documented classes, one module a framework: they check arguments, call the verbs, and keep state."""
