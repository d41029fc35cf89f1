"""docs/how-tested.md equals the page that its generator writes from the committed results."""

from tested_page import PAGE, page


def test_the_committed_page_matches_the_results():
    """Run `make tested` after a change of a result or a report."""
    assert PAGE.read_text("utf-8") == page()
