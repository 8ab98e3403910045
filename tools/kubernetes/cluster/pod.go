package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// What a kubelet would do with the pod on standard input (as `kubectl get pod -o json` gives it), by the kubelet's own code:
// "environment" and "arguments" print those of its first container, one a line; "probes" asks each of its probes once.
func pod(what string) error {
	var pod v1.Pod
	if err := json.NewDecoder(os.Stdin).Decode(&pod); err != nil {
		return err
	}
	container := &pod.Spec.Containers[0]
	environment, err := environmentOf(&pod, container)
	if err != nil {
		return err
	}
	switch what {
	case "environment":
		for _, variable := range container.Env {
			fmt.Printf("%s=%s\n", variable.Name, environment[variable.Name])
		}
	case "arguments":
		for _, argument := range append(container.Command, container.Args...) {
			fmt.Println(expansion.Expand(argument, expansion.MappingFuncFor(environment)))
		}
	case "probes":
		return askAll(pod.Status.PodIP, container)
	default:
		return fmt.Errorf("a pod has no %q", what)
	}
	return nil
}

func environmentOf(pod *v1.Pod, container *v1.Container) (map[string]string, error) {
	environment := map[string]string{}
	for _, variable := range container.Env {
		value := expansion.Expand(variable.Value, expansion.MappingFuncFor(environment))
		if from := variable.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, fmt.Errorf("%s: only fields of the pod are looked up here", variable.Name)
			}
			var err error
			if value, err = fieldpath.ExtractFieldPathAsString(pod, from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		}
		environment[variable.Name] = value
	}
	return environment, nil
}

func askAll(address string, container *v1.Container) error {
	asked, failed := 0, []error{}
	for _, declared := range []struct {
		kind  string
		probe *v1.Probe
	}{{"startup", container.StartupProbe}, {"readiness", container.ReadinessProbe}, {"liveness", container.LivenessProbe}} {
		if declared.probe == nil {
			continue
		}
		asked++
		result, answer, err := ask(address, container, declared.probe)
		fmt.Printf("%s of %s: %s: %s\n", declared.kind, address, result, answer)
		if err == nil && result != probe.Success {
			err = errors.New(string(result))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", declared.kind, err))
		}
	}
	if asked == 0 {
		return errors.New("the pod declares no probes")
	}
	return errors.Join(failed...)
}

func ask(address string, container *v1.Container, declared *v1.Probe) (probe.Result, string, error) {
	timeout := time.Duration(declared.TimeoutSeconds) * time.Second
	switch {
	case declared.HTTPGet != nil:
		request, err := httpprobe.NewRequestForHTTPGetAction(declared.HTTPGet, container, address, "probe")
		if err != nil {
			return probe.Unknown, "", err
		}
		const followNonLocalRedirects = false
		return httpprobe.New(followNonLocalRedirects).Probe(request, timeout)
	case declared.GRPC != nil:
		service := ""
		if declared.GRPC.Service != nil {
			service = *declared.GRPC.Service
		}
		return grpcprobe.New().Probe(address, service, int(declared.GRPC.Port), timeout)
	}
	return probe.Unknown, "", errors.New("only gRPC and HTTP are asked here")
}
