"""The machine and the verbs around it: pure, on any Array API namespace, knowing nothing above this floor."""
