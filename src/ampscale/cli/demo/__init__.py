"""The demo: a float16 network trained seven ways on handwritten digits."""
