"""JSON Schema: checked when a definition is deployed, evaluated within a limited number of steps."""
