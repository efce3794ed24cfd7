"""Which latents can be inferred, and learned, by the gradient of their draws."""

from typing import Any

from varfilter._arguments import listed
from varfilter._tree import once_per_signature
from varfilter.contracts import first_step
from varfilter.distributions import not_reparameterisable
from varfilter.model import AbstractModel


def require_reparameterisable(name: str, model: Any) -> None:
    """Refuse, for what is called `name`, latents whose draws have no gradient to descend."""
    if families := draws_without_gradient(model):
        raise TypeError(
            f"`{name}` needs latents whose draws are differentiable, z = f(parameters, noise);"
            f" `{type(model).__name__}.prior` returns {listed(families)}, which cannot be"
            " reparameterised, so that dF/dq would miss what the observation says."
            " Use `ParticleFilter(Prior(), num_particles)`."
        )


def draws_without_gradient(model: Any) -> list[str]:
    """The families of a model's latents that are not reparameterisable, by name."""
    return [type(each).__name__ for each in _not_reparameterisable(model)]


def undeclared_families(model: Any) -> list[str]:
    """Those of `draws_without_gradient` that claim to be reparameterisable, by name."""
    found = _not_reparameterisable(model)
    return [type(each).__name__ for each in found if each.is_reparameterisable]


@once_per_signature
def _not_reparameterisable(model: AbstractModel) -> list[Any]:
    return not_reparameterisable(first_step(model).prior)
