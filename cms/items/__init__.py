"""Items: reads, writes, their history, imports and exports."""
