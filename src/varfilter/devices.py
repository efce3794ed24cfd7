"""Where things lie: batches spread over all devices of all processes, parameters on each of them.

The batch is the one axis that is divided: each device filters its own sequences, and what is
summed over the batch (gradients, metrics) is summed over the devices. Every process runs the
same program on the same settings; only files are left to the first.
"""

import contextlib
import os
import warnings
from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from varfilter import _saved
from varfilter._arguments import kind, require_positive
from varfilter._text import count

T = TypeVar("T")

AXIS = "batch"

# Of each way to start processes: where the number of processes and this one's are found. What
# is not found here is left to jax, which knows SLURM, Open MPI up to 4, and clouds.
NUMBERS = (
    ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
)


def connect(
    address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    timeout: int = 300,
) -> None:
    """Join the other processes of this run; to be called before anything is computed.

    Where an argument is None it is taken from JAX_COORDINATOR_ADDRESS (host:port of process 0),
    JAX_NUM_PROCESSES and JAX_PROCESS_ID, or from what SLURM (`srun`), Open MPI (`mpirun`) or a
    cloud has set. SLURM and Open MPI give each process one accelerator of its machine, unless
    JAX_LOCAL_DEVICE_IDS says otherwise. `timeout` is how many seconds to wait for the others.
    """
    require_positive("timeout", timeout)
    address = address or os.environ.get("JAX_COORDINATOR_ADDRESS")
    for names in NUMBERS:
        if num_processes is None and process_id is None and any(n in os.environ for n in names):
            num_processes, process_id = map(_number, names)
    _require_rank(address, num_processes, process_id)
    try:
        jax.distributed.initialize(
            address, num_processes, process_id, initialization_timeout=timeout
        )
    except ValueError as error:
        raise ValueError(
            f"No other processes were found ({str(error).rstrip('.')}): `address` is {address!r},"
            f" `num_processes` {num_processes}, `process_id` {process_id}. Start with `srun` or"
            " `mpirun`, or set JAX_COORDINATOR_ADDRESS (host:port of process 0), JAX_NUM_PROCESSES"
            " and JAX_PROCESS_ID (from 0) for each process."
        ) from None
    except RuntimeError as error:
        if "before any JAX" not in str(error) and "only be called once" not in str(error):
            raise
        raise RuntimeError(
            "`connect` comes too late: jax has already computed something, or is connected."
            " Call it once, before all else."
        ) from None


def is_first_process() -> bool:
    """Whether this process writes the files of the run; always so where there is only one."""
    return jax.process_index() == 0


def device_mesh(batch_size: int, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The devices that share a batch: as many of all of them as divide `batch_size` evenly.

    A warning says so where some stay idle. Each process takes part with as many as the others.
    """
    require_positive("batch_size", batch_size)
    given = jax.devices() if devices is None else list(devices)
    by_process: dict[int, list[jax.Device]] = {}
    for device in sorted(given, key=lambda d: (d.process_index, d.id)):
        by_process.setdefault(device.process_index, []).append(device)
    if batch_size % len(by_process):
        raise ValueError(
            f"`batch_size` is {batch_size}, which {len(by_process)} processes cannot share evenly."
            f" Give a multiple of {len(by_process)}."
        )
    most = min(map(len, by_process.values()))
    each = max(n for n in range(1, most + 1) if batch_size % (n * len(by_process)) == 0)
    used = [device for own in by_process.values() for device in own[:each]]
    if len(used) < len(given):
        warnings.warn(
            f"{len(used)} of {len(given)} devices are used: `batch_size` is {batch_size}, and each"
            f" takes as many sequences as the others. A multiple of {len(given)} uses all.",
            stacklevel=2,
        )
    return Mesh(np.array(used), (AXIS,), axis_types=(AxisType.Auto,))


def require_mesh(mesh: Any, batch_size: int) -> Mesh:
    """Refuse what is no mesh like that of `device_mesh`, or does not divide the batch evenly."""
    if not isinstance(mesh, Mesh) or mesh.axis_names != (AXIS,):
        raise TypeError(
            f"`devices` must be a mesh with the one axis {AXIS!r}, `device_mesh(batch_size)`;"
            f" got {kind(mesh)}."
        )
    if batch_size % mesh.size:
        raise ValueError(
            f"`devices` are {mesh.size}, but the batch has {count(batch_size, 'sequence')}, which"
            " they cannot share evenly. Use `device_mesh(batch_size)`, or another batch size."
        )
    return mesh


def require_agreement(name: str, *values: Any) -> None:
    """Refuse values that differ between processes: each would wait for what others never do."""
    if jax.process_count() == 1:
        return
    from jax.experimental import multihost_utils

    digest = np.frombuffer(bytes.fromhex(_saved.fingerprint(*values)), np.uint8)
    if (np.asarray(multihost_utils.process_allgather(digest)) != digest).any():
        raise ValueError(
            f"{name} differ between the {jax.process_count()} processes, of which this is number"
            f" {jax.process_index()}. Start all with the same settings and data."
        )


def of_first_process(tree: T) -> T:
    """Take the arrays as they are in the first process, which alone may have found a checkpoint."""
    if jax.process_count() == 1:
        return tree
    from jax.experimental import multihost_utils

    return _on_plain_arrays(multihost_utils.broadcast_one_to_all, tree)


def in_any_process(is_so: bool) -> bool:
    """Whether it is so in any process, for what all have to do together, such as to stop.

    All must ask, and equally often.
    """
    if jax.process_count() == 1:
        return is_so
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.asarray(is_so))))


def replicated(mesh: Mesh, tree: T) -> T:
    """Put the arrays whole on each device; they must already be the same in all processes."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def put(leaf: Any) -> jax.Array:
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

    return _on_plain_arrays(lambda leaves: [put(leaf) for leaf in leaves], tree)


def own_places(mesh: Mesh, batch_size: int) -> slice:
    """The places of a batch whose sequences lie on the devices of this process."""
    places = NamedSharding(mesh, PartitionSpec(AXIS)).addressable_devices_indices_map((batch_size,))
    bounds = [place[0].indices(batch_size) for place in places.values() if place]
    return slice(min(b[0] for b in bounds), max(b[1] for b in bounds))


def sharded(mesh: Mesh, tree: T) -> T:
    """Spread a batch over the devices, of which this process gives the sequences it has."""
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    if jax.process_count() == 1:  # from device to device
        return jax.device_put(tree, sharding)
    return jax.tree.map(
        lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree
    )


def own_copy(tree: T) -> T:
    """Copy replicated arrays to this process's first device, for it alone to use."""
    return jax.tree.map(
        lambda leaf: leaf.addressable_data(0) if isinstance(leaf, jax.Array) else leaf, tree
    )


def using_mesh(mesh: Mesh | None) -> contextlib.AbstractContextManager[Any]:
    """Open a context in which compiled functions heed `spread` and `keep_whole`."""
    return contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh)


def spread(tree: T, axis: int = 0) -> T:
    """Divide `axis` of each array over the devices; without a mesh do nothing.

    It changes no value: it says to the compiler who computes what. Where the axis does not
    divide evenly, the last devices have less to do.
    """
    num_devices = _num_devices()

    def constrain(leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        return jax.lax.with_sharding_constraint(leaf, PartitionSpec(*[None] * axis, AXIS))

    return tree if num_devices == 1 else jax.tree.map(constrain, tree)


def keep_whole(tree: T) -> T:
    """Keep each array whole on each device; without a mesh do nothing."""
    if _num_devices() == 1:
        return tree
    return jax.tree.map(
        lambda leaf: (
            jax.lax.with_sharding_constraint(leaf, PartitionSpec()) if eqx.is_array(leaf) else leaf
        ),
        tree,
    )


def _num_devices() -> int:
    mesh = jax.sharding.get_abstract_mesh()
    kinds = dict(zip(mesh.axis_names, mesh.axis_types, strict=True))
    return mesh.shape[AXIS] if kinds.get(AXIS) == AxisType.Auto else 1


def _on_plain_arrays(function: Any, tree: T) -> T:
    """Apply `function` to the list of all arrays, random keys as their numbers."""
    leaves, structure = jax.tree.flatten(tree)
    places = [place for place, leaf in enumerate(leaves) if eqx.is_array(leaf)]
    keys = {
        place: jax.random.key_impl(leaves[place])
        for place in places
        if jnp.issubdtype(leaves[place].dtype, jax.dtypes.prng_key)
    }
    plain = [jax.random.key_data(leaves[p]) if p in keys else leaves[p] for p in places]
    for place, value in zip(places, function(plain), strict=True):
        array = jnp.asarray(value)
        leaves[place] = (
            jax.random.wrap_key_data(array, impl=keys[place]) if place in keys else array
        )
    return structure.unflatten(leaves)


def _number(variable: str) -> int:
    text = os.environ.get(variable, "")
    if not text.isdecimal():
        raise ValueError(
            f"The environment variable {variable} must be a whole number; got {text!r}. It and its"
            " counterpart tell this process how many there are, and which it is (from 0)."
        )
    return int(text)


def _require_rank(address: Any, num_processes: Any, process_id: Any) -> None:
    if (num_processes is None) != (process_id is None):
        raise ValueError(
            f"`num_processes` and `process_id` go together; got {num_processes} and {process_id}."
        )
    if num_processes is not None and not 0 <= process_id < require_positive(
        "num_processes", num_processes
    ):
        raise ValueError(
            f"`process_id` must be from 0 to `num_processes` - 1 = {num_processes - 1};"
            f" got {process_id}."
        )
    if address is not None and not address.rpartition(":")[2].isdecimal():
        raise ValueError(f"`address` must be host:port of process 0; got {address!r}.")
