"""The names of the package, each with the module that holds it; see lazy.py."""

from .addresses import FactoredTorchConfig as FactoredTorchConfig
from .command import run_command as run_command
from .report import RayReportCallback as RayReportCallback
from .strategy import RayFactoredStrategy as RayFactoredStrategy
