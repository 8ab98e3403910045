#include <google/protobuf/text_format.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/checkpoint/files.h"
#include "core/hardware/catalog.h"
#include "proto/enum_text.h"
#include "proto/errors.h"
#include "proto/status.h"
#include "server/cli/command.h"
#include "server/cli/output.h"
#include "simulator/cost/calibration.h"

namespace legoai::cli {
namespace {

std::string Fraction(double fraction) { return absl::StrFormat("%.3f", fraction); }

std::string FitsTable(const sim::DeviceFit& fit) {
  Table table({"<operators", "<type", "points", "held back", "assumed", "its error", "measured", "error", "90 %", "within 10 %",
               "log RMSE"});
  for (const sim::ClassFit& one : fit.fits) {
    const sim::PredictionError& error = one.measured_error;
    table.Add({sim::OpClassName(one.op_class), EnumText(one.dtype), std::to_string(one.points), std::to_string(one.held_back),
               Fraction(one.assumed), PercentText(one.assumed_error.median), Fraction(one.measured), PercentText(error.median),
               PercentText(error.p90), PercentText(error.within_10_percent), Fraction(error.log_rmse)});
  }
  return table.Text();
}

std::string FiguresText(const v1::Calibration& calibration, const v1::Device& before, const v1::Device& after) {
  std::string text =
      absl::StrCat("kernel launch ", SecondsText(after.kernel_launch_seconds()), " (assumed ",
                   SecondsText(before.kernel_launch_seconds()), "), host dispatch ", SecondsText(after.host_dispatch_seconds()),
                   " (assumed ", SecondsText(before.host_dispatch_seconds()), ")\n");
  for (const auto& memory : calibration.memory()) {
    absl::StrAppend(&text, memory.name(), " ", BandwidthText(memory.bytes_per_second()), "\n");
  }
  for (const auto& load : calibration.sustained()) {
    absl::StrAppend(&text, "products of ", EnumText(load.dtype()), " without pauses: ", FlopsText(load.first_flops_per_second()),
                    " at first, ", FlopsText(load.last_flops_per_second()), " after ", SecondsText(load.seconds()), "\n");
  }
  return text;
}

std::string Heading(const v1::Calibration& calibration) {
  const auto& from = calibration.provenance();
  return absl::StrCat(from.card(), ", ", from.date(), ": ", calibration.operators_size(), " points, ",
                      calibration.left_out_size(), " left out, ", calibration.points_not_reached(), " not reached",
                      from.quick() ? "; shapes too small to rely on (--quick)" : "", "\n");
}

Tree ErrorTree(const sim::PredictionError& error) {
  return {
      {"median", error.median}, {"p90", error.p90}, {"within_10_percent", error.within_10_percent}, {"log_rmse", error.log_rmse}};
}

Tree FitTree(const v1::Calibration& calibration, const sim::DeviceFit& fit) {
  Tree tree;
  tree["provenance"] = ToTree(calibration.provenance());
  tree["fits"] = Tree::array();
  for (const sim::ClassFit& one : fit.fits) {
    tree["fits"].push_back({{"op_class", sim::OpClassName(one.op_class)},
                            {"dtype", EnumText(one.dtype)},
                            {"points", one.points},
                            {"held_back", one.held_back},
                            {"assumed", one.assumed},
                            {"assumed_error", ErrorTree(one.assumed_error)},
                            {"measured", one.measured},
                            {"measured_error", ErrorTree(one.measured_error)}});
  }
  tree["notes"] = fit.notes;
  tree["device"] = ToTree(fit.device);
  return tree;
}

absl::Status WriteDevice(const std::string& path, const v1::Calibration& calibration, const v1::Device& device) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(device, &text);
  const auto& from = calibration.provenance();
  const std::string heading = absl::StrCat("# ", device.type(), " as ", from.card(), " measured it, ", from.date(),
                                           ": made by `lego calibrate`, errors are those of points held back from the fit\n");
  return checkpoint::WriteFile(path, heading + text);
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto calibration, sim::LoadCalibration(arguments.positional().front()));
  const auto assumed = sim::FindDevice(arguments.Text("type"));
  if (!assumed.ok()) return Annotate(assumed.status(), "--type");
  ASSIGN_OR_RETURN(const auto fit, sim::FitDevice(calibration, *assumed));
  const std::string out = arguments.Text("out");
  if (!out.empty()) {
    RETURN_IF_ERROR(WriteDevice(out, calibration, fit.device));
  }
  if (arguments.format() != Format::kTable) {
    Print(TreeText(arguments.format(), FitTree(calibration, fit)));
    return kDone;
  }
  Print(Heading(calibration) + "\n" + FitsTable(fit) + "\n" + FiguresText(calibration, *assumed, fit.device));
  for (const std::string& note : fit.notes) Print(absl::StrCat("note: ", note, "\n"));
  Print("errors are |predicted / measured - 1| on the points held back: their median, and what 90 % stay below\n");
  if (!out.empty()) Print(absl::StrCat("kept in ", out, ": --cluster ", out, ":8x1 computes with it\n"));
  return kDone;
}

}  // namespace

Command CalibrateCommand() {
  CommandSpec spec;
  spec.name = "calibrate";
  spec.summary =
      "Fits a device's efficiencies on what a card measured (lego-measure --device=cuda), and says how well they hold.";
  spec.positional = "FILE";
  spec.least_positional = spec.most_positional = 1;
  spec.options = {{"type", "TYPE", "the catalog's device that the card is (lego hardware)", false, /*required=*/true},
                  {"out", "FILE.txtpb", "where to keep the device, for --cluster FILE.txtpb:8x1"}};
  spec.details = "A class of operators or a type with too few points keeps what the catalog assumes, and is named.";
  spec.example = "lego calibrate calibration.txtpb --type h100-sxm-80 --out my-h100.txtpb";
  return {spec, Run};
}

}  // namespace legoai::cli
