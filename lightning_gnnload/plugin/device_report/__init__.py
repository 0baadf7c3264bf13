"""What a GPU is, does and should do: the file that ``gnnload doctor --gpu`` writes."""
