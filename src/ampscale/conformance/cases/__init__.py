"""The cases, a module for each chapter of spec/: what is asked, and what is wrong with whoever answers otherwise."""
