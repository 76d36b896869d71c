"""The last stage: mutations are ordered and run, and refusals of the database explained."""
