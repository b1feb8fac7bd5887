# One image with all of LMetric: /lmetric-operator, /lmetric-epp, /lmetric-drain and /lmetric, static, on an empty base.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --sbom=true --provenance=mode=max \
#     --build-arg VERSION=0.2.0 --build-arg REVISION=$(git rev-parse HEAD) -t lmetric/lmetric:0.2.0 .
#
# The compiler runs on the build machine's own architecture and links for the target's (musl; mimalloc in place of its
# allocator), so that no architecture is emulated. No shell, no package manager, no writable file, no root.

ARG RUST_VERSION=1.95.0
# An empty base; name a distroless static image of your mirror to build upon that instead.
ARG BASE=scratch

FROM --platform=$BUILDPLATFORM tonistiigi/xx:1.6.1 AS xx

FROM --platform=$BUILDPLATFORM rust:${RUST_VERSION}-alpine AS build
# Alpine keeps one version of a package.
# hadolint ignore=DL3018
RUN apk add --no-cache ca-certificates clang file lld musl-dev
# It holds scripts only, and is installed like this.
# hadolint ignore=DL3067
COPY --from=xx / /
WORKDIR /src
ARG TARGETPLATFORM
# C for ring and mimalloc
RUN xx-apk add --no-cache gcc musl-dev linux-headers
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY proto proto
COPY data data
COPY demo demo
COPY e2e e2e
COPY fuzz/harness fuzz/harness
ENV CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=symbols
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,id=target-$TARGETPLATFORM \
    xx-cargo build --release --locked \
      --bin lmetric-operator --bin lmetric-epp --bin lmetric-drain --bin lmetric --target-dir target && \
    mkdir /out && \
    for program in lmetric-operator lmetric-epp lmetric-drain lmetric; do \
      cp "target/$(xx-cargo --print-target-triple)/release/$program" /out/ && xx-verify --static "/out/$program"; \
    done
RUN mkdir -p /root-of-image/etc/ssl/certs && \
    cp /etc/ssl/certs/ca-certificates.crt /root-of-image/etc/ssl/certs/ && \
    printf 'root:x:0:0::/:\nnonroot:x:65532:65532::/:\n' >/root-of-image/etc/passwd && \
    printf 'root:x:0:\nnonroot:x:65532:\n' >/root-of-image/etc/group && \
    mkdir -m 1777 /root-of-image/tmp

FROM ${BASE}
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="lmetric" \
      org.opencontainers.image.description="Cache- and load-aware serving of LLMs with vLLM on Kubernetes: operator, endpoint picker, tools" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /root-of-image/ /
COPY LICENSE /LICENSE
COPY --from=build /out/ /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# numeric, so that the kubelet can tell that it is not root
USER 65532:65532
ENTRYPOINT ["/lmetric-operator"]
CMD ["run"]
