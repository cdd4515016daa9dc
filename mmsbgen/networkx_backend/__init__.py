"""The backend ``mmsbgen`` of networkx: its functions on graphs, computed by graph programs."""
