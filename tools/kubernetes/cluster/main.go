// The parts of a Kubernetes control plane in one program, so that their shared code is compiled and linked once; and "pod", what of
// the kubelet is needed to start and probe a program as a pod declares it (pod.go).
// Its first argument says which part to be; the rest are that part's own arguments.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the parts share one registry of metrics
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Commands are made only when asked for: each registers flags of the whole process.
var services = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: cluster etcd|kubectl|kube-apiserver|kube-controller-manager|kube-scheduler|pod ARGUMENTS")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = os.Args[1:]
	if service, known := services[part]; known {
		os.Exit(cli.Run(service()))
	}
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kubectl":
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
	case "pod":
		if len(os.Args) != 2 {
			fmt.Fprintln(os.Stderr, "usage: cluster pod environment|arguments|probes <POD.json")
			os.Exit(2)
		}
		if err := pod(os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintf(os.Stderr, "cluster: no part is called %q\n", part)
		os.Exit(2)
	}
}
