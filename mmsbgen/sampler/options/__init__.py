"""Options of a run, and the phases that it goes through."""
