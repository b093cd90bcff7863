"""Peer kernels on one NVIDIA GPU, at the shapes of `seam bench kernels --size real`.

    peers.py run [--out FILE] [--only TEXT] [--replays N]    time FLA's and torch's kernels
    peers.py join SEAM.json PEERS.json [--out FILE]          one table: work, Seam, peer, ratio

`run` needs torch with CUDA, and FLA (flash-linear-attention) installed or as a folder on PYTHONPATH. Each work is
captured once as a CUDA graph and replayed; what cannot be captured is timed by CUDA events, and the document says so.
`join` needs the standard library alone. Run `run` right after Seam on the same GPU: only ratios of one sitting mean something.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Callable, NoReturn

# T is the transition operator of a segment: peers build it by a second state pass from the identity, Seam beside the
# forward pass. So forward and T of the peer together stand against Seam's `operator` cases.
GDN_SHAPES: dict[str, list[int]] = {
    "1x32768": [32768],
    "64x512": [512] * 64,
    "32x1024": [1024] * 32,
    "1x8192": [8192],
    "16x512": [512] * 16,
}
SDPA_SHAPES: list[tuple[int, int]] = [(512, 32768), (8192, 8192), (32768, 32768), (1, 32768)]
GEMM_SHAPES: list[tuple[int, int, int]] = [(512, 12288, 2048), (4096, 12288, 2048), (32768, 12288, 2048)]


# Every form of a recurrence that Seam has.
FORMS = ("tile", "chunk", "recurrent")


def same_work() -> dict[str, list[str]]:
    """Cases of Seam by the name of the peer's work; the fastest one counts."""
    table: dict[str, list[str]] = {}
    for shape in GDN_SHAPES:
        table[f"gdn/{shape}"] = [f"gated_delta_rule/{form}/{shape}" for form in FORMS]
        operator = [f"gated_delta_rule/{form}/operator/{shape}" for form in FORMS]
        table[f"gdn+T/{shape}"] = operator
    for family in ("lightning", "mamba2"):
        table[f"{family}/64x512"] = [f"{family}/{form}/64x512" for form in FORMS]
    for rows, keys in SDPA_SHAPES:
        kind = "decode" if rows == 1 else "prefill"
        table[f"sdpa/{rows}x{keys}"] = [f"attention/{kind}/{rows}x{keys}"]
    for m, n, k in GEMM_SHAPES:
        table[f"gemm/{m}x{n}x{k}"] = [f"gemm/many/{m}"]
    return table


def fail(message: str) -> NoReturn:
    """Ends the program with a sentence."""
    sys.exit(f"peers.py: {message}")


class Bench:
    """Times works on the GPU and keeps their medians."""

    def __init__(self, torch: Any, replays: int, only: str) -> None:
        self.torch, self.replays, self.only = torch, replays, only
        self.works: dict[str, dict[str, Any]] = {}
        # The default generator is registered with graphs, and refuses to work after a capture that failed.
        self.random = torch.Generator(device="cuda").manual_seed(0)

    def wanted(self, *names: str) -> bool:
        """Whether any of the works is asked for."""
        return any(self.only in name for name in names)

    def events(self, run: Callable[[], Any]) -> float:
        """Median of some runs in milliseconds, by events."""
        torch, times = self.torch, []
        for _ in range(3):
            run()
        for _ in range(self.replays):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return sorted(times)[len(times) // 2]

    def median(self, run: Callable[[], Any]) -> tuple[float, str]:
        """Median in milliseconds, by replays of a graph where the work can be captured."""
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                run()
        except RuntimeError as error:
            torch.cuda.synchronize()
            print(f"  not captured: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            return self.events(run), "events"
        return self.events(graph.replay), "graph"

    def work(self, name: str, run: Callable[[], Any], flops: float = 0.0, moved: float = 0.0) -> None:
        """Times a work; an error of the peer is part of the document."""
        torch = self.torch
        try:
            with torch.no_grad():
                run()
                torch.cuda.synchronize()
                ms, how = self.median(run)
        except Exception as error:  # noqa: BLE001  whatever a peer's kernel raises must not lose the others
            reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]
            self.works[name] = {"error": reason}
            print(f"{name:28s} failed: {reason}", flush=True)
            return
        entry: dict[str, Any] = {"ms": ms, "how": how}
        rates = []
        if flops:
            entry["tflop_per_s"] = flops / ms / 1e9
            rates.append(f"{entry['tflop_per_s']:.1f} TFLOP/s")
        if moved:
            entry["gb_per_s"] = moved / ms / 1e6
            rates.append(f"{entry['gb_per_s']:.0f} GB/s")
        self.works[name] = entry
        print(f"{name:28s} {ms:10.4f} ms  {how}  {' '.join(rates)}", flush=True)


def offsets(lengths: list[int]) -> list[int]:
    """Where sequences begin in a flat batch, and its end."""
    out = [0]
    for length in lengths:
        out.append(out[-1] + length)
    return out


def ceilings(bench: Bench) -> None:
    """A copy and products: what this GPU does at most, to be compared with Seam's ceilings."""
    torch = bench.torch
    if bench.wanted("copy"):
        source = torch.zeros(1 << 30, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        bench.work("copy", lambda: target.copy_(source), moved=2 * source.numel())
        del source, target
    for m, n, k in [(8192, 8192, 8192), *GEMM_SHAPES]:
        name = f"gemm/{m}x{n}x{k}"
        if bench.wanted(name):
            a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16, generator=bench.random)
            w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16, generator=bench.random)
            bench.work(name, lambda a=a, w=w: a @ w.T, flops=2.0 * m * n * k)
            del a, w
            torch.cuda.empty_cache()


def gated_delta_rule(bench: Bench) -> None:
    """Forward with final states, 16 key heads, 32 value heads of 128; then T as HYPIC builds it."""
    torch = bench.torch
    from fla.ops.common.chunk_delta_h import chunk_gated_delta_rule_fwd_h
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule
    from fla.ops.utils import chunk_local_cumsum

    key_heads, heads, dim = 16, 32, 128
    for shape, lengths in GDN_SHAPES.items():
        name, with_t = f"gdn/{shape}", f"T/{shape}"
        if not bench.wanted(name, with_t):
            continue
        tokens, count = sum(lengths), len(lengths)
        unit = torch.nn.functional.normalize
        q = unit(torch.randn(1, tokens, key_heads, dim, device="cuda", generator=bench.random), dim=-1).to(torch.bfloat16)
        k = unit(torch.randn(1, tokens, key_heads, dim, device="cuda", generator=bench.random), dim=-1).to(torch.bfloat16)
        v = torch.randn(1, tokens, heads, dim, device="cuda", dtype=torch.bfloat16, generator=bench.random)
        # Gates as trained models have them: A uniform in [0.01, 16], steps log-uniform in [0.001, 0.1].
        rates = torch.empty(heads, device="cuda").uniform_(0.01, 16.0, generator=bench.random)
        steps = torch.exp(torch.rand(heads, device="cuda", generator=bench.random) * math.log(100.0) + math.log(1e-3))
        bias = steps + torch.log(-torch.expm1(-steps))
        noise = 0.5 * torch.randn(1, tokens, heads, device="cuda", generator=bench.random)
        g = -rates * torch.nn.functional.softplus(noise + bias)
        beta = torch.rand(1, tokens, heads, device="cuda", generator=bench.random).to(torch.bfloat16)
        cu = torch.tensor(offsets(lengths), device="cuda", dtype=torch.long) if count > 1 else None
        zero = torch.zeros(count, heads, dim, dim, device="cuda")

        def forward() -> Any:
            return chunk_gated_delta_rule(
                q, k, v, g, beta, scale=dim**-0.5, initial_state=zero, output_final_state=True, cu_seqlens=cu
            )

        if bench.wanted(name):
            bench.work(name, forward)
        if bench.wanted(with_t):
            try:
                from fla.ops.gated_delta_rule.chunk_fwd import chunk_gated_delta_rule_fwd_intra

                sums = chunk_local_cumsum(g, chunk_size=64, cu_seqlens=cu)
                w, u, *_ = chunk_gated_delta_rule_fwd_intra(k=k, v=v, g=sums, beta=beta, cu_seqlens=cu)
            except Exception as error:  # noqa: BLE001  an internal function, which versions of FLA move
                bench.works[with_t] = {"error": f"{type(error).__name__}: {error}"[:300]}
                print(f"{with_t:28s} failed: {error}"[:200], flush=True)
                continue
            identity = torch.eye(dim, device="cuda").expand(count, heads, dim, dim).contiguous()
            nothing = torch.zeros_like(u)

            def transition() -> Any:
                return chunk_gated_delta_rule_fwd_h(
                    k=k, w=w, u=nothing, g=sums, initial_state=identity, output_final_state=True, cu_seqlens=cu
                )

            bench.work(with_t, transition)
        del q, k, v, g, beta, zero
        torch.cuda.empty_cache()


def flat(bench: Bench, heads: int, key: int, value: int) -> tuple[Any, Any, Any, Any]:
    """q, k, v and the offsets of 64 sequences of 512 tokens."""
    torch, count, length = bench.torch, 64, 512
    cu = torch.tensor(offsets([length] * count), device="cuda", dtype=torch.long)

    def of(dim: int) -> Any:
        shape = (1, count * length, heads, dim)
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=bench.random)

    return of(key), of(key), of(value), cu


def lightning(bench: Bench) -> None:
    """Lightning attention, 16 heads of 128x128, with final states."""
    if bench.wanted("lightning/64x512"):
        from fla.ops.lightning_attn import chunk_lightning_attn

        q, k, v, cu = flat(bench, 16, 128, 128)
        bench.work(
            "lightning/64x512",
            lambda: chunk_lightning_attn(q, k, v, layer_idx=8, num_layers=24, output_final_state=True, cu_seqlens=cu),
        )


def mamba2(bench: Bench) -> None:
    """Mamba-2 as simple GLA, 64 heads, N 128, P 64, with final states."""
    torch = bench.torch
    if bench.wanted("mamba2/64x512"):
        from fla.ops.simple_gla import chunk_simple_gla

        q, k, v, cu = flat(bench, 64, 128, 64)
        noise = torch.randn(1, 64 * 512, 64, device="cuda", generator=bench.random)
        g = torch.nn.functional.logsigmoid(noise) / 16
        bench.work("mamba2/64x512", lambda: chunk_simple_gla(q, k, v, g, output_final_state=True, cu_seqlens=cu))


def attention(bench: Bench) -> None:
    """SDPA, 16 query and 2 KV heads of 256. Rows that are fewer than the keys see all of them."""
    torch = bench.torch
    for rows, keys in SDPA_SHAPES:
        name = f"sdpa/{rows}x{keys}"
        if not bench.wanted(name):
            continue
        q = torch.randn(1, 16, rows, 256, device="cuda", dtype=torch.bfloat16, generator=bench.random)
        k = torch.randn(1, 2, keys, 256, device="cuda", dtype=torch.bfloat16, generator=bench.random)
        v = torch.randn(1, 2, keys, 256, device="cuda", dtype=torch.bfloat16, generator=bench.random)
        causal = rows == keys
        flops = 4.0 * rows * keys * 16 * 256 * (0.5 if causal else 1.0)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        bench.work(name, lambda q=q, k=k, v=v, c=causal: sdpa(q, k, v, is_causal=c, enable_gqa=True), flops=flops)
        del q, k, v
        torch.cuda.empty_cache()


def run(args: argparse.Namespace) -> None:
    """Times every peer and writes the document."""
    try:
        import torch
    except ImportError as error:
        fail(f"torch is missing ({error}): install torch with CUDA, or put it on PYTHONPATH")
    if not torch.cuda.is_available():
        fail("torch finds no CUDA device")
    # FLA would hand the gated delta rule to FlashQLA where that is installed: the figures are to be FLA's own.
    os.environ["FLA_FLASH_QLA"] = "0"
    try:
        import fla
    except ImportError as error:
        fail(f"fla is missing ({error}): put flash-linear-attention on PYTHONPATH")
    bench = Bench(torch, args.replays, args.only)
    ceilings(bench)
    # What may not be captured comes last: a capture that fails can leave the process without graphs.
    for part in (gated_delta_rule, attention, lightning, mamba2):
        try:
            part(bench)
        except (ImportError, RuntimeError) as error:
            # Another version of FLA, or a library that gives up: the document says what is absent.
            bench.works[part.__name__] = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(f"{part.__name__}: {error}", file=sys.stderr)
        write(bench, args, fla)


def write(bench: Bench, args: argparse.Namespace, fla: Any) -> None:
    """The document as far as it is known: a work that never ends costs no other."""
    torch = bench.torch
    document = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "fla": getattr(fla, "__version__", "unknown"),
        "replays": args.replays,
        "works": bench.works,
    }
    if args.out:
        args.out.write_text(json.dumps(document, indent=1) + "\n")


def load(path: Path) -> dict[str, Any]:
    """A JSON document."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        fail(f"cannot read {path}: {error}")
    if not isinstance(document, dict):
        fail(f"{path} is no JSON object")
    return document


def joined(seam: dict[str, Any], peers: dict[str, Any]) -> list[dict[str, Any]]:
    """Works that both sides have timed; what one of them lacks is said in the other's place."""
    timed = {row["name"]: 1e3 * row["seconds"]["median"] for row in seam["kernels"] if row.get("seconds")}
    why = {row["name"]: row.get("reason") or row["status"] for row in seam["kernels"] if not row.get("seconds")}
    works = dict(peers["works"])
    for shape in GDN_SHAPES:
        parts = [works.get(f"gdn/{shape}", {}), works.get(f"T/{shape}", {})]
        if all("ms" in part for part in parts):
            works[f"gdn+T/{shape}"] = {"ms": sum(part["ms"] for part in parts)}
    rows = []
    for work, cases in same_work().items():
        here = [(timed[case], case) for case in cases if case in timed]
        peer = works.get(work, {})
        row: dict[str, Any] = {"work": work, "seam_ms": None, "seam_case": None, "peer_ms": peer.get("ms")}
        row["ratio"] = None
        if here:
            row["seam_ms"], row["seam_case"] = min(here)
        if row["seam_ms"] and row["peer_ms"]:
            row["ratio"] = row["seam_ms"] / row["peer_ms"]
        missing = [f"Seam: {why.get(case, 'not run')}" for case in cases[:1] if not here]
        missing += [] if row["peer_ms"] else [f"peer: {peer.get('error', 'not run')}"]
        row["note"] = "; ".join(missing)
        rows.append(row)
    ceilings = [
        ("copy", "bytes", "copy", 2 << 30),
        ("product", "flops", "gemm/8192x8192x8192", 2 * 8192**3),
    ]
    for name, unit, work, amount in ceilings:
        peer_ms = works.get(work, {}).get("ms")
        # Seam's ceiling at the peer's size.
        seam_ms = 1e3 * seam[name]["seconds"]["median"] / seam[name][unit] * amount
        row = {"work": f"ceiling: {name}", "seam_ms": seam_ms, "seam_case": name, "peer_ms": peer_ms}
        row["ratio"] = seam_ms / peer_ms if peer_ms else None
        row["note"] = "scaled to the peer's size" if peer_ms else "peer: not run"
        rows.append(row)
    return rows


def join(args: argparse.Namespace) -> None:
    """Prints the table of both documents, and writes it."""
    seam, peers = load(args.seam), load(args.peers)
    for name, document, fields in (("Seam's", seam, ("kernels", "copy", "product")), ("the peers'", peers, ("works",))):
        for field in fields:
            if field not in document:
                fail(f"{name} document has no {field!r}")
    rows = joined(seam, peers)
    number = lambda x: "-" if x is None else f"{x:.4f}"  # noqa: E731
    ratio = lambda x: "-" if x is None else f"{x:.2f}"  # noqa: E731
    cells = [("work", "Seam ms", "peer ms", "ratio", "Seam's case", "note")]
    for r in rows:
        times = (number(r["seam_ms"]), number(r["peer_ms"]), ratio(r["ratio"]))
        cells.append((r["work"], *times, r["seam_case"] or "-", r["note"]))
    widths = [max(len(row[i]) for row in cells) for i in range(6)]
    for row in cells:
        pairs = enumerate(zip(row, widths))
        columns = [cell.rjust(width) if 1 <= i <= 3 else cell.ljust(width) for i, (cell, width) in pairs]
        print(" | ".join(columns).rstrip())
    if args.out:
        devices = {"seam": seam.get("device"), "precision": seam.get("precision"), "peers": peers.get("device")}
        document = {**devices, "rows": rows}
        args.out.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(required=True)
    timing = modes.add_parser("run", help="time FLA and torch on this GPU")
    timing.add_argument("--out", type=Path, help="write the JSON document here")
    timing.add_argument("--only", default="", metavar="TEXT", help="only works whose name contains this")
    timing.add_argument("--replays", type=int, default=30, metavar="N", help="samples of each work (default 30)")
    timing.set_defaults(mode=run)
    joining = modes.add_parser("join", help="one table from Seam's document and the peers'")
    joining.add_argument("seam", type=Path)
    joining.add_argument("peers", type=Path)
    joining.add_argument("--out", type=Path, help="write the JSON document here")
    joining.set_defaults(mode=join)
    args = parser.parse_args()
    if getattr(args, "replays", 1) < 1:
        fail("--replays must be at least 1")
    args.mode(args)


if __name__ == "__main__":
    main()
