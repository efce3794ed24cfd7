"""Videos for the tests, written without loss."""

import av
import numpy as np


def write_video(path, images, *, codec="ffv1", pixels="gray", rate=10, rotation=0):
    """Images (time, height, width[, 3]) as a file; ffv1 loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = pixels
        if rotation:
            stream.set_display_rotation(rotation)
        for image in images:
            frame = av.VideoFrame.from_ndarray(image, "gray" if image.ndim == 2 else "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


def noise(num_frames, height=12, width=16, *, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (num_frames, height, width), np.uint8)
