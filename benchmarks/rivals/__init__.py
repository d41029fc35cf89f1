"""What people would use instead: each library's own ways to do what the verbs do."""
