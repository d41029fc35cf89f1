"""What a run leaves: for tools JSON and JUnit's XML, for people Markdown, and one page for many implementations side by side."""
