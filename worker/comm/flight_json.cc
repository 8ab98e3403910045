// FlightDump as JSON with PyTorch's field names.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/errors.h"
#include "worker/comm/flight_ring.h"

namespace legoai::comm {
namespace {

using Json = nlohmann::ordered_json;

Json EntryToJson(const v1::FlightEntry& entry) {
  auto sizes = [](const auto& values) { return Json::array({std::vector<int64_t>(values.begin(), values.end())}); };
  auto time = [](int64_t ns) { return ns == 0 ? Json(nullptr) : Json(ns); };
  Json json;
  json["record_id"] = entry.record_id();
  json["pg_id"] = entry.pg_id();
  json["process_group"] = {absl::StrCat(entry.pg_id()), entry.process_group()};
  json["collective_seq_id"] = entry.collective_seq_id();
  json["p2p_seq_id"] = entry.p2p_seq_id();
  json["op_id"] = entry.op_id();
  json["profiling_name"] = entry.profiling_name();
  json["time_created_ns"] = entry.time_created_ns();
  json["time_discovered_started_ns"] = time(entry.time_started_ns());
  json["time_discovered_completed_ns"] = time(entry.time_completed_ns());
  json["input_sizes"] = sizes(entry.input_sizes());
  json["input_dtypes"] = {entry.dtype()};
  json["output_sizes"] = sizes(entry.output_sizes());
  json["output_dtypes"] = {entry.dtype()};
  json["state"] = entry.state();
  json["retired"] = entry.state() == "completed";
  json["timeout_ms"] = entry.timeout_ms();
  json["is_p2p"] = entry.is_p2p();
  if (entry.is_p2p()) json["peer"] = entry.peer();
  json["frames"] = Json::array();
  return json;
}

int64_t Integer(const Json& json, const char* key) {
  auto it = json.find(key);
  return it == json.end() || !it->is_number_integer() ? 0 : it->get<int64_t>();
}

v1::FlightEntry EntryFromJson(const Json& json) {
  v1::FlightEntry entry;
  entry.set_record_id(Integer(json, "record_id"));
  entry.set_pg_id(Integer(json, "pg_id"));
  if (auto it = json.find("process_group"); it != json.end() && it->is_array() && it->size() == 2) {
    entry.set_process_group((*it)[1].get<std::string>());
  }
  entry.set_collective_seq_id(Integer(json, "collective_seq_id"));
  entry.set_p2p_seq_id(Integer(json, "p2p_seq_id"));
  entry.set_op_id(Integer(json, "op_id"));
  entry.set_profiling_name(json.value("profiling_name", ""));
  entry.set_time_created_ns(Integer(json, "time_created_ns"));
  entry.set_time_started_ns(Integer(json, "time_discovered_started_ns"));
  entry.set_time_completed_ns(Integer(json, "time_discovered_completed_ns"));
  entry.set_state(json.value("state", ""));
  entry.set_timeout_ms(Integer(json, "timeout_ms"));
  entry.set_is_p2p(json.value("is_p2p", false));
  entry.set_peer(entry.is_p2p() ? Integer(json, "peer") : -1);
  auto first_sizes = [&](const char* key, auto add) {
    if (auto it = json.find(key); it != json.end() && it->is_array() && !it->empty()) {
      for (const Json& size : it->front()) add(size.get<int64_t>());
    }
  };
  first_sizes("input_sizes", [&](int64_t size) { entry.add_input_sizes(size); });
  first_sizes("output_sizes", [&](int64_t size) { entry.add_output_sizes(size); });
  if (auto it = json.find("input_dtypes"); it != json.end() && it->is_array() && !it->empty())
    entry.set_dtype(it->front().get<std::string>());
  return entry;
}

}  // namespace

std::string FlightDumpToJson(const v1::FlightDump& dump) {
  Json json;
  json["version"] = dump.version();
  json["rank"] = dump.rank();
  json["world_size"] = dump.world_size();
  json["reason"] = dump.reason();
  json["pg_config"] = Json::object();
  for (const auto& group : dump.groups()) {
    json["pg_config"][absl::StrCat(group.pg_id())] = {{"name", absl::StrCat(group.pg_id())},
                                                      {"desc", group.name()},
                                                      {"ranks", absl::StrCat("[", absl::StrJoin(group.ranks(), ", "), "]")}};
  }
  json["entries"] = Json::array();
  for (const auto& entry : dump.entries()) json["entries"].push_back(EntryToJson(entry));
  return json.dump(1);
}

absl::StatusOr<v1::FlightDump> FlightDumpFromJson(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    v1::FlightDump dump;
    dump.set_version(json.at("version").get<std::string>());
    dump.set_rank(Integer(json, "rank"));
    dump.set_world_size(Integer(json, "world_size"));
    dump.set_reason(json.value("reason", ""));
    for (const auto& [id, config] : json.at("pg_config").items()) {
      auto* group = dump.add_groups();
      group->set_pg_id(std::stoll(id));
      group->set_name(config.value("desc", ""));
      const Json ranks = config.at("ranks").is_string() ? Json::parse(config.at("ranks").get<std::string>()) : config.at("ranks");
      for (const Json& rank : ranks) group->add_ranks(rank.get<int64_t>());
    }
    for (const Json& entry : json.at("entries")) *dump.add_entries() = EntryFromJson(entry);
    return dump;
  } catch (const std::exception& e) {  // nlohmann's and the standard library's exceptions end here
    return FieldError("flight dump", text.substr(0, 40), absl::StrCat("not a flight recorder's JSON: ", e.what()));
  }
}

}  // namespace legoai::comm
