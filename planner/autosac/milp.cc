#include "planner/autosac/milp.h"

#include <coin/Cbc_C_Interface.h>

#include <cfloat>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace legoai::planner {
namespace {

struct Deleter {
  void operator()(Cbc_Model* model) const { Cbc_deleteModel(model); }
};

// CBC's infinity is the largest double.
double Bound(double value) { return std::isinf(value) ? std::copysign(DBL_MAX, value) : value; }

void Set(Cbc_Model* model, const char* name, const std::string& value) { Cbc_setParameter(model, name, value.c_str()); }

}  // namespace

absl::StatusOr<std::vector<double>> Milp::Minimize(const Limits& limits) const {
  const std::unique_ptr<Cbc_Model, Deleter> owner(Cbc_newModel());
  Cbc_Model* const model = owner.get();
  Set(model, "log", "0");
  Set(model, "slog", "0");
  Set(model, "sec", absl::StrCat(limits.seconds));
  Set(model, "maxNodes", absl::StrCat(limits.nodes));
  Set(model, "ratio", absl::StrCat(limits.gap));
  for (const Variable& v : variables_)
    Cbc_addCol(model, "", Bound(v.least), Bound(v.most), v.cost, v.integer, 0, nullptr, nullptr);
  for (const Row& row : rows_) {
    std::vector<int> places;
    std::vector<double> coefficients;
    for (const auto& [place, coefficient] : row.terms) places.push_back(place), coefficients.push_back(coefficient);
    Cbc_addRow(model, "", static_cast<int>(places.size()), places.data(), coefficients.data(), row.sense, row.bound);
  }
  // Without an integer CBC leaves all to its linear solver, which prints.
  Cbc_addCol(model, "", 0, 1, 0, true, 0, nullptr, nullptr);
  Cbc_setObjSense(model, 1);
  Cbc_solve(model);
  if (Cbc_isProvenInfeasible(model)) return absl::NotFoundError("no values meet all rows");
  // After the time limit, the best that was found so far.
  const bool found = Cbc_isProvenOptimal(model) || Cbc_bestSolution(model) != nullptr;
  if (!found) return absl::DeadlineExceededError(absl::StrCat("no solution within ", limits.seconds, " s"));
  const double* const values = Cbc_getColSolution(model);
  std::vector<double> solution(values, values + variables_.size());
  for (size_t i = 0; i < solution.size(); ++i) {
    if (variables_[i].integer) solution[i] = std::round(solution[i]);
  }
  return solution;
}

}  // namespace legoai::planner
