"""DGL's examples by DGL's loaders and by ours."""
