"""The description of the service: what it offers to one caller, as a document of OpenAPI 3.1."""
