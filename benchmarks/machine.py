"""Description of the machine that runs the benchmark."""

import os
import platform
import re
from pathlib import Path
from typing import Any

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
CPUINFO = Path("/proc/cpuinfo")


def description() -> dict[str, Any]:
    """Return processor, cores, caches and memory, as far as the system reports them."""
    return {
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "caches": caches(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
    }


def load() -> float | None:
    """Return the load average of the last minute; None on a system without one."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def cpu() -> str:
    """Return the name of the processor."""
    match = re.search(r"^model name\s*:\s*(.+)$", CPUINFO.read_text() if CPUINFO.exists() else "", re.MULTILINE)
    return (match[1] if match else platform.processor() or platform.machine()).strip()


def caches() -> dict[str, str]:
    """Return the sizes of the first core's caches, by level and type."""
    sizes = {}
    for folder in sorted(CACHES.glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        sizes[f"L{level}{'' if kind == 'Unified' else kind[0].lower()}"] = size
    return sizes


def short(name: str) -> str:
    """Return the short name of a processor, such as "Intel Xeon" for "Intel(R) Xeon(R) Processor @ 2.10GHz"."""
    return " ".join(re.sub(r"\((r|tm)\)|\b(processor|cpu)\b|@.*", " ", name, flags=re.IGNORECASE).split())


def title(machine: dict[str, Any]) -> str:
    """Return the short name of a described processor, with its first data cache: several processors share a name."""
    name, size = short(machine["cpu"]), machine["caches"].get("L1d")
    return name if size is None else f"{name}, L1d {size}"


def slug(name: str) -> str:
    """Return a processor's name as part of a file name, such as "intel-xeon"."""
    return re.sub(r"[^a-z0-9]+", "-", short(name).lower()).strip("-")
