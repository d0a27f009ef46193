# Every target works offline once the modules are downloaded.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
LINT := go tool -modfile=tools/go.mod golangci-lint

.PHONY: build test race lint cross generate bench clean

build: ## bin/proxops for this machine
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/proxops ./cmd/proxops

test: ## what the README's second command runs
	go test ./...

race:
	go test -race ./...

lint:
	$(LINT) run ./...

cross: ## static binaries for linux amd64 and arm64
	CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/proxops_linux_amd64 ./cmd/proxops
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/proxops_linux_arm64 ./cmd/proxops

generate: ## documents that are printed from the code
	go test ./internal/kind -run FieldsGolden -update
	UPDATE_DOCS=1 go test ./internal/repo -run ReferenceIsCurrent
	go test ./internal/web -run Generated -update
	go test ./test/cases -run TestDisruption -update
	go test ./cmd/proxops -run Generated -update

bench:
	go test -run '^$$' -bench . -benchtime 3x ./internal/...

clean:
	rm -rf bin
