"""The printers of SQL: reads, writes, locks, history."""
