"""Types of cases, implementations under test and results."""
