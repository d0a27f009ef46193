package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxops/proxops/internal/pvesim"
)

// faultKinds are what may go wrong in a lab.
var faultKinds = [...]pvesim.FaultKind{
	pvesim.FaultReset, pvesim.FaultError, pvesim.FaultSlow, pvesim.FaultLost, pvesim.FaultTruncate,
	pvesim.FaultNoWorker, pvesim.FaultTaskFail, pvesim.FaultTaskWarn, pvesim.FaultLockTimeout, pvesim.FaultNodeDown,
}

// parseFaults reads --faults: kind[,setting=value…].
func parseFaults(texts []string) ([]pvesim.Fault, error) {
	var out []pvesim.Fault
	for _, text := range texts {
		f, err := parseFault(text)
		if err != nil {
			return nil, fmt.Errorf("--faults %s: %w", text, err)
		}
		out = append(out, f)
	}
	return out, nil
}

func parseFault(text string) (pvesim.Fault, error) {
	kind, rest, more := strings.Cut(text, ",")
	f := pvesim.Fault{Kind: pvesim.FaultKind(kind), P: 1}
	if !slices.Contains(faultKinds[:], f.Kind) {
		var names []string
		for _, k := range faultKinds {
			names = append(names, string(k))
		}
		return f, fmt.Errorf("%q is not one of %s", kind, strings.Join(names, ", "))
	}
	switch f.Kind {
	case pvesim.FaultSlow:
		f.Delay = 5 * time.Second
	case pvesim.FaultNodeDown:
		f.Delay = 30 * time.Second
	}
	if !more {
		return f, nil
	}
	for _, setting := range strings.Split(rest, ",") {
		key, value, _ := strings.Cut(setting, "=")
		if err := setFault(&f, key, value); err != nil {
			return f, err
		}
	}
	return f, nil
}

func setFault(f *pvesim.Fault, key, value string) error {
	var err error
	bad := func(allowed string) error {
		return fmt.Errorf("%s: %q is not %s", key, value, allowed)
	}
	switch key {
	case "p":
		if f.P, err = strconv.ParseFloat(value, 64); err != nil || !(f.P >= 0 && f.P <= 1) {
			return bad("a probability in 0-1")
		}
	case "count":
		if f.Count, err = strconv.Atoi(value); err != nil || f.Count < 0 {
			return bad("a number from 0; 0 is without bound")
		}
	case "status":
		if f.Status, err = strconv.Atoi(value); err != nil || f.Status < 400 || f.Status > 599 {
			return bad("a status in 400-599")
		}
	case "delay":
		if f.Delay, err = time.ParseDuration(value); err != nil || f.Delay < 0 {
			return bad("a duration such as 2s")
		}
	case "method":
		if f.Method = strings.ToUpper(value); !slices.Contains([]string{"GET", "POST", "PUT", "DELETE"}, f.Method) {
			return bad("one of GET, POST, PUT, DELETE")
		}
	case "path":
		if !strings.HasPrefix(value, "/") {
			return bad("an API path such as /nodes/*/qemu/**")
		}
		f.Path = value
	default:
		return fmt.Errorf("%q is not one of p, count, status, delay, method, path", key)
	}
	return nil
}
