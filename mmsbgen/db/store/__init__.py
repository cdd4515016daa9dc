"""Tables, connections and queries of the tuning database."""
