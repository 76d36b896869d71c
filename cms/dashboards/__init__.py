"""The data of the panels of dashboards, and their pictures."""
