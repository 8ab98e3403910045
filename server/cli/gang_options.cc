#include "server/cli/gang_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/train_layout.h"

namespace legoai::cli {
namespace {

constexpr int64_t kMostHosts = 1 << 12;

}  // namespace

std::vector<Option> GangOptions() {
  return {{"nnodes", "N", "hosts that train together, each with a call of its own and as many ranks (1)"},
          {"node-rank", "K", "which of them this host is; 0, the first, keeps the run's files"},
          {"master-addr", "HOST", "the first host, by a name or address by which all reach it"},
          {"master-port", "PORT", "where the others join there (29500)"},
          {"interface", "IF", "network interface of this host's ranks; that of the way to the first host, if it is not given"}};
}

absl::StatusOr<std::optional<launch::GangPlace>> ReadGang(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto hosts, arguments.Integer("nnodes", 1, kMostHosts));
  if (hosts.value_or(1) == 1) {
    for (const char* name : {"node-rank", "master-addr", "master-port", "interface"}) {
      if (!hosts && arguments.Has(name)) return FieldError(absl::StrCat("--", name), arguments.Text(name), "goes with --nnodes");
    }
    return std::optional<launch::GangPlace>();
  }
  for (const char* name : {"node-rank", "master-addr"}) {
    if (!arguments.Has(name)) return FieldError(absl::StrCat("--", name), "", absl::StrCat("is needed with --nnodes ", *hosts));
  }
  launch::GangPlace place;
  place.hosts = *hosts;
  ASSIGN_OR_RETURN(const auto host, arguments.Integer("node-rank", 0, *hosts - 1));
  place.host = *host;
  place.address = arguments.Text("master-addr");
  ASSIGN_OR_RETURN(const auto port, arguments.Integer("master-port", 1, 65535));
  place.port = port.value_or(place.port);
  if (arguments.Has("interface")) {
    RETURN_IF_ERROR(launch::UseInterface(arguments.Text("interface")));
  }
  return std::optional<launch::GangPlace>(std::move(place));
}

absl::Status CheckGang(const Arguments& arguments, const v1::JobSpec& spec, const v1::Recipe& recipe) {
  const char* remedy = "is of one machine: give all hosts a recipe that says the layout, as `lego plan --cluster` writes it";
  if (arguments.Has("predict")) return FieldError("--predict", "", "goes with one host: it simulates this machine's cores");
  if (LeavesLayoutOpen(spec))
    return FieldError("--nnodes", arguments.Text("nnodes"), absl::StrCat("a layout that is left open ", remedy));
  if (recipe.compile().fsdp_bucketing() == v1::BUCKET_BY_PLAN && recipe.compile().fsdp_buckets_size() == 0)
    return FieldError("compile.fsdp_bucketing", "auto", absl::StrCat("with --nnodes, a plan of buckets ", remedy));
  return absl::OkStatus();
}

std::string CrossingNote(const v1::Recipe& recipe, int64_t ranks) {
  const int64_t degree = recipe.parallelism().tensor_parallel_degree();
  if (degree <= 1 || ranks % degree == 0) return "";
  return absl::StrCat("note: tensor parallel groups of ", degree, " ranks cross hosts, which have ", ranks,
                      " each: they exchange activations in every layer, and a network between hosts is slow for that");
}

absl::StatusOr<int64_t> RanksOfEach(int64_t ranks, int64_t hosts) {
  if (ranks % hosts == 0) return ranks / hosts;
  return FieldError("--nnodes", absl::StrCat(hosts),
                    absl::StrCat("does not divide the ", ranks, " ranks that are asked for: each host has as many"));
}

}  // namespace legoai::cli
