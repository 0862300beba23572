# The image of the manager: one static program, what it needs to check the certificates of
# public authorities by, and nothing else. It runs as a number, on a read-only root, and
# writes no file.
#
#   make image                  the first stage, with a program that is built on this machine
#                               (.ci/image): no Go image is needed, and no registry
#   docker build -t NAME .      all from source, in containers; needs BuildKit, whose caches
#                               keep modules and what was compiled from one build to the next
#   DOCKER_BUILDKIT=0 docker build -t NAME --target layers .
#                               the same without BuildKit; layers keep the modules
#
# CI builds the first, as a registry has to answer for the others.
#
# Arguments:
#   BASE     what the image stands on: scratch (the default, which no registry has to
#            answer for), or the name of a distroless static image
#   GOLANG   the image with Go to build in
#   VERSION  what the program and the label org.opencontainers.image.version say
#
# The legacy builder builds all stages that stand before its target, so what needs BuildKit
# is last.
ARG BASE=scratch
ARG GOLANG=golang:1.26.8

FROM ${BASE} AS base
ARG VERSION=dev
LABEL org.opencontainers.image.title="Rulefleet" \
      org.opencontainers.image.description="Keeps the Prometheus alert rules of a fleet of Kubernetes clusters" \
      org.opencontainers.image.source="https://github.com/rulefleet/rulefleet" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# By number: Kubernetes can't tell whether a name is root (runAsNonRoot).
USER 65532:65532
ENTRYPOINT ["/rulefleet-manager"]

FROM ${GOLANG} AS modules
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY pkg pkg

FROM modules AS build-layers
ARG VERSION=dev
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /rootfs/rulefleet-manager ./cmd/manager
RUN mkdir -p /rootfs/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/

FROM base AS layers
COPY --from=build-layers /rootfs/ /

# It compiles for other platforms (--platform linux/amd64,linux/arm64) without an emulator.
FROM --platform=${BUILDPLATFORM} ${GOLANG} AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local
COPY go.mod go.sum ./
COPY api api
COPY cmd cmd
COPY pkg pkg
ARG VERSION=dev
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /rootfs/rulefleet-manager ./cmd/manager
RUN mkdir -p /rootfs/etc/ssl/certs && cp /etc/ssl/certs/ca-certificates.crt /rootfs/etc/ssl/certs/

FROM base
COPY --from=build /rootfs/ /
