"""What the panels of dashboards show, and their pictures."""
