"""The methods known by name, a file each; ``package.module:Class`` names one of one's own."""

from fairbench.errors import RecipeError
from fairbench.registry import Registry

_HOME = "fairbench.training.methods"
METHODS = Registry(
    "method",
    RecipeError,
    {
        "standard": f"{_HOME}.standard:Standard",
        "pgd_at": f"{_HOME}.pgd_at:PGDAT",
        "trades": f"{_HOME}.trades:Trades",
        "frl": f"{_HOME}.frl:FRL",
        "bat": f"{_HOME}.bat:BAT",
        "fat": f"{_HOME}.fat:FAT",
        "gairat": f"{_HOME}.gairat:GAIRAT",
        "refrl_at": f"{_HOME}.refrl_at:RefrlAT",
        "refrl_reweight": f"{_HOME}.refrl_reweight:RefrlReweight",
        "refrl_remargin": f"{_HOME}.refrl_remargin:RefrlRemargin",
        "static_augmentation": f"{_HOME}.static_augmentation:StaticAugmentation",
        "cfa": f"{_HOME}.cfa:CFA",
        "dafa": f"{_HOME}.dafa:DAFA",
        "wat": f"{_HOME}.wat:WAT",
    },
    listing="fairbench methods",
    own_code="CLASS",
)
"""Method name to its :class:`~fairbench.training.method.Method` subclass, loaded when it is asked for."""
