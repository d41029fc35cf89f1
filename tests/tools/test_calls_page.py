"""The page of calls is generated from the tables that the classes use."""

from calls_page import PAGE, page


def test_the_committed_page_matches_the_tables():
    """`make api` writes the page."""
    assert PAGE.read_text("utf-8") == page()
