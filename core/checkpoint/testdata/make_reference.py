"""Makes the recorded files of safetensors_test.cc with the safetensors package.

Made with Python 3.11, safetensors 0.8.0 and numpy 2.4.6:
  python3 -m venv venv && venv/bin/pip install safetensors==0.8.0 numpy==2.4.6
  venv/bin/python make_reference.py
Every tensor holds 0, 1, 2, ... (booleans: every third is true), so the test needs no other reference for the values.
"""

import pathlib

import numpy as np
from safetensors import TensorSpec, serialize_file
from safetensors import numpy as st

HERE = pathlib.Path(__file__).parent


def count(shape, dtype):
    return np.arange(int(np.prod(shape)), dtype=np.int64).astype(dtype).reshape(shape)


def main():
    tensors = {
        "z.float32": count((2, 3, 4), np.float32),
        "a.float32": count((5,), np.float32),
        "float64": count((3, 1), np.float64),
        "float16": count((4, 4), np.float16),
        "int64": count((7,), np.int64),
        "int32": count((2, 2), np.int32),
        "int16": count((3,), np.int16),
        "int8": count((3,), np.int8),
        "uint8": count((5,), np.uint8),
        "bool": np.arange(9).reshape(3, 3) % 3 == 0,
        "scalar": np.array(0, np.float32),
        "empty": np.zeros((0, 4), np.float32),
        "quote\" and \u00fc": count((2,), np.float32),
    }
    st.save_file(tensors, HERE / "types.safetensors", metadata={"format": "pt"})
    # bfloat16 is unknown to numpy: its bits are given through the package's own serializer.
    bits = (count((2, 8), np.float32).view(np.uint32) >> 16).astype(np.uint16)
    half = count((3,), np.float16)
    specs = {
        "half": TensorSpec(dtype="float16", shape=[3], data_ptr=half.ctypes.data, data_len=half.nbytes),
        "brain": TensorSpec(dtype="bfloat16", shape=[2, 8], data_ptr=bits.ctypes.data, data_len=bits.nbytes),
    }
    serialize_file(specs, HERE / "bfloat16.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
