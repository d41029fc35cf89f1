"""Demo: a float16 network, trained in seven ways on handwritten digits."""
