# The image of the manager contains one static program and a bundle of public CA certificates.
# It runs as a numeric user, needs no writable root file system, and writes no file.
#
#   make image                  puts a program that is built on this machine into the first stage
#                               (.ci/image). It needs neither an image with Go nor a registry.
#   docker build -t NAME .      compiles the program in a container. It needs BuildKit, whose
#                               caches keep modules and compiled code between builds.
#   DOCKER_BUILDKIT=0 docker build -t NAME --target layers .
#                               does the same without BuildKit. Layers keep the modules.
#
# CI only runs the first command, because the others pull the image with Go from a registry.
#
# Arguments:
#   BASE     the base image: scratch (the default, which is not pulled), or the name of a
#            distroless static image
#   GOLANG   the image with Go, in which the program is compiled
#   VERSION  the version that the program and the label org.opencontainers.image.version show
#
# The legacy builder builds all stages before its target. So the stages that need BuildKit are last.
ARG BASE=scratch
ARG GOLANG=golang:1.26.8

FROM ${BASE} AS base
ARG VERSION=dev
LABEL org.opencontainers.image.title="Rulefleet" \
      org.opencontainers.image.description="Manages the Prometheus alert rules of a fleet of Kubernetes clusters from one hub" \
      org.opencontainers.image.source="https://github.com/rulefleet/rulefleet" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
# A number, because Kubernetes cannot check that a user name is not root (runAsNonRoot).
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
