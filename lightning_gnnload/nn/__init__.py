"""Layers for the step itself, which take less of a processor's time than torch's own."""
