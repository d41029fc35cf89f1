"""What is measured: each module gives its rows as specs."""
