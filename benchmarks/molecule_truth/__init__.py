"""Do attributions find the atoms that made a label? Functions of molecules whose atoms' contributions are known."""
