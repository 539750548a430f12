# SPDX-License-Identifier: Apache-2.0
"""What a machine offers to tests/gpu/run: card, compiler, libraries, Python with PyTorch. Only looks."""
import dataclasses
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

# Without a card: what the build is tried for.
ARCHITECTURE = "90"
PACKAGES = ["yaml-0.1", "jansson", "libpcre2-8", "zlib"]
LIBRARIES = ["libcublasLt.so", "libcudnn.so", "libnccl.so"]


@dataclasses.dataclass
class Machine:
    root: pathlib.Path
    build: pathlib.Path
    rehearse: bool
    card: str = "none"
    no_gpu: str = ""  # why
    architecture: str = ARCHITECTURE
    memory_bytes: int = 0
    nvcc: str = ""
    python: str = ""  # one with PyTorch
    torch: str = ""  # its version
    carried: list = dataclasses.field(default_factory=list)
    options: list = dataclasses.field(default_factory=list)  # of CMake
    env: dict = dataclasses.field(default_factory=dict)

    @property
    def device(self):
        return "cpu" if self.rehearse else "cuda"

    def program(self, name):
        return self.build / name


def output(argv, limit=60, env=None):
    """Standard output, or None where the program fails or is missing."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=limit,
                              env=env, check=False, universal_newlines=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_card(m):
    asked = "name,compute_cap,memory.total"
    text = output(["nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits", "-i", "0"])
    fields = [field.strip() for field in (text or "").split("\n")[0].split(",")]
    if len(fields) != 3 or not fields[1].replace(".", "").isdigit():
        m.no_gpu = "nvidia-smi found no card" if shutil.which("nvidia-smi") else "no nvidia-smi"
        return
    m.card, m.architecture = fields[0], fields[1].replace(".", "")
    m.memory_bytes = int(float(fields[2])) << 20


def find_torch(m):
    ask = "import torch; print(torch.__version__)"
    for python in [os.environ.get("TORCH_PYTHON"), "python3", sys.executable, "python"]:
        path = shutil.which(python) if python else None
        version = output([path, "-c", ask], 120) if path else None
        if version:
            m.python, m.torch = path, version.split("\n")[-1]
            return


def find_libraries(m):
    """CUDA's libraries of PyTorch's wheels, where the system has none of its own."""
    known = output(["ldconfig", "-p"]) or ""
    toolkit = pathlib.Path(m.nvcc).resolve().parents[1] if m.nvcc else pathlib.Path("/nonexistent")
    missing = [name for name in LIBRARIES
               if name not in known and not glob.glob(str(toolkit / "lib*" / (name + "*")))]
    ask = "import nvidia; print('\\n'.join(nvidia.__path__))"
    packages = output([m.python, "-c", ask]) if m.python else None
    folders = []
    for place in (packages or "").split("\n"):
        for name in missing:
            files = glob.glob(os.path.join(place, "*", "lib", name + "*")) if place else []
            folders += [os.path.dirname(file) for file in files]
    path = list(dict.fromkeys(folders)) + [m.env.get("LD_LIBRARY_PATH", "")]
    m.env["LD_LIBRARY_PATH"] = ":".join(part for part in path if part)


def find_carried(m):
    """Takes from .carry what the machine lacks."""
    packed, carry = m.root / ".carry" / "carry.tar.gz", m.build / "carry"
    if packed.exists():
        m.build.mkdir(parents=True, exist_ok=True)
        with tarfile.open(packed) as archive:
            archive.extractall(carry)
    if not shutil.which("pkg-config") and (carry / "bin" / "pkg-config").exists():
        m.options.append(f"-DPKG_CONFIG_EXECUTABLE={carry / 'bin' / 'pkg-config'}")
        m.carried.append("pkg-config")
    missing = [name for name in PACKAGES
               if output(["pkg-config", "--exists", name], env=m.env) is None]
    folders = glob.glob(str(carry / "lib" / "*" / "pkgconfig"))
    if missing and folders:
        m.env["PKG_CONFIG_PATH"] = ":".join(folders + [m.env.get("PKG_CONFIG_PATH", "")])
        m.carried += missing
    places = glob.glob(str(carry / "lib" / "*" / "cmake" / "GTest"))
    if places and not glob.glob("/usr/include/gtest/gtest.h"):
        m.options.append(f"-DGTest_DIR={places[0]}")
        m.carried.append("googletest")
    ninja = shutil.which("ninja") or str(carry / "bin" / "ninja")
    if output([ninja, "--version"]):
        m.options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]


def find(root, build, rehearse):
    m = Machine(root, build, rehearse, env=dict(os.environ))
    m.nvcc = (shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin") or "")
    if not rehearse:
        find_card(m)
    find_torch(m)
    find_libraries(m)
    find_carried(m)
    return m
