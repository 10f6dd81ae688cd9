# syntax=docker/dockerfile:1
# One binary on a runtime image without a shell. The CPU image is the last stage and so the default.
ARG RUST_IMAGE=rust:1.95-slim-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST_IMAGE} AS builder
# jemalloc is built with make.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ENV CARGO_PROFILE_RELEASE_STRIP=symbols \
    RUSTFLAGS="--remap-path-prefix=/src=asynclane --remap-path-prefix=/usr/local/cargo=cargo"
# Records the list of crates in the binary, for image scanners.
ARG CARGO_AUDITABLE=0.7.7
RUN cargo install --locked cargo-auditable@${CARGO_AUDITABLE}
# The cache mounts are not part of the image, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo auditable build --release --locked --package asynclane-cli --bin asynclane \
    && install -D --mode=0755 target/release/asynclane /out/asynclane

# The same with CUDA kernels, using a compiler from PyPI wheels: `docker build --target cuda`.
FROM ${RUST_IMAGE} AS cuda-builder
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl g++ make unzip \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ENV CARGO_PROFILE_RELEASE_STRIP=symbols \
    RUSTFLAGS="--remap-path-prefix=/src=asynclane --remap-path-prefix=/usr/local/cargo=cargo" \
    CUDA_HOME=/opt/cuda
RUN crates/kernels/cuda/toolkit "$CUDA_HOME"
ARG CARGO_AUDITABLE=0.7.7
RUN cargo install --locked cargo-auditable@${CARGO_AUDITABLE}
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo auditable build --release --locked --package asynclane-cli --bin asynclane \
        --features cuda \
    && install -D --mode=0755 target/release/asynclane /out/asynclane

# The common base of both images.
FROM ${RUNTIME_IMAGE} AS runtime
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="asynclane" \
      org.opencontainers.image.description="OpenAI-compatible inference server for diffusion language models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY LICENSE /LICENSE
USER 65532
EXPOSE 8000
# Unhealthy only 30 minutes after the start: until then the model may be loading.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30m --retries=3 \
    CMD ["/asynclane", "inspect", "health"]
ENTRYPOINT ["/asynclane"]

# The NVIDIA container runtime provides the driver's library of the host.
FROM runtime AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=cuda-builder /out/asynclane /asynclane
CMD ["serve", "--listen", "0.0.0.0:8000", "--device", "cuda"]

FROM runtime AS cpu
COPY --from=builder /out/asynclane /asynclane
CMD ["serve", "--listen", "0.0.0.0:8000"]
