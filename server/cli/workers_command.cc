#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/job_text.h"
#include "server/cli/output.h"
#include "server/cli/server_call.h"

namespace legoai::cli {
namespace {

absl::StatusOr<v1::Worker> OneWorker(Client& client, const std::string& name, const Arguments& arguments) {
  if (arguments.Has("drain") || arguments.Has("undrain")) {
    v1::DrainWorkerRequest request;
    request.set_name(name);
    request.set_undo(arguments.Has("undrain"));
    return client.DrainWorker(request);
  }
  v1::GetWorkerRequest request;
  request.set_name(name);
  return client.GetWorker(request);
}

absl::Status CheckCall(const Arguments& arguments) {
  if (arguments.Has("drain") && arguments.Has("undrain")) return FieldError("--drain", "", "and --undrain exclude each other");
  if (arguments.positional().empty()) {
    for (const char* option : {"drain", "undrain"}) {
      if (arguments.Has(option)) return FieldError("NAME", "", absl::StrCat("is needed with --", option));
    }
  } else if (arguments.Has("filter")) {
    return FieldError("--filter", arguments.Text("filter"), "goes without a NAME");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  RETURN_IF_ERROR(CheckCall(arguments));
  ASSIGN_OR_RETURN(const auto client, ConnectTo(arguments));
  const bool table = arguments.format() == Format::kTable;
  if (arguments.positional().empty()) {
    v1::ListWorkersRequest request;
    request.set_filter(arguments.Text("filter"));
    ASSIGN_OR_RETURN(const auto workers, client->ListWorkers(request));
    Tree list = Tree::array();
    for (const v1::Worker& worker : workers.workers()) list.push_back(ToTree(worker));
    if (table && workers.workers().empty()) {
      Print("no workers; start legoai-agent on the machines that train\n");
    } else {
      Print(table ? WorkersTable(workers.workers()) : TreeText(arguments.format(), list));
    }
    return kDone;
  }
  const std::string text = arguments.positional()[0];
  ASSIGN_OR_RETURN(const auto worker,
                   OneWorker(*client, absl::StartsWith(text, "workers/") ? text : "workers/" + text, arguments));
  v1::ListWorkersResponse one;
  *one.add_workers() = worker;
  Print(table ? WorkersTable(one.workers()) : TreeText(arguments.format(), ToTree(worker)));
  return kDone;
}

}  // namespace

Command WorkersCommand() {
  CommandSpec spec;
  spec.name = "workers";
  spec.summary = "Lists the machines that train, with what they are doing, or takes one out of use.";
  spec.positional = "NAME";
  spec.most_positional = 1;
  spec.options = {{"drain", "", "gives NAME nothing new; what runs there goes on"},
                  {"undrain", "", "makes NAME ready again"},
                  {"filter", "FILTER", "terms joined by AND: state = ready, pool = default"},
                  ServerOption()};
  spec.example = "lego workers node-7 --drain";
  return {spec, Run};
}

}  // namespace legoai::cli
