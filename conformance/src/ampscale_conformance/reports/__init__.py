"""Reports of a run: plain text, JUnit XML, Markdown, and an HTML page that compares implementations."""
