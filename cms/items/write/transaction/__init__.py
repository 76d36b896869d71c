"""What runs in the transaction of any write: statements, rows with their history, events."""
