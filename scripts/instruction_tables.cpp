// Prints what LLVM's tables say about every opcode of amdgcn, for generate_instruction_tables.py beside this file.
//
// Built against the public headers of an LLVM (llvm/MC/MCInstrDesc.h and its neighbours) and linked with its library.
// Output, one record a line, fields separated by tabs:
//   llvm VERSION
//   processor NAME MODE             the hardware mode that chooses register classes on this processor
//   opcode NAME DEFINITIONS FLAGS TSFLAGS USES DEFINES OPERANDS
//     FLAGS       names of the MCInstrDesc flags, separated by blanks
//     TSFLAGS     the target's own flags, hexadecimal
//     USES        registers read implicitly, lower-case, separated by blanks; DEFINES likewise
//     OPERANDS    TYPE:TIED:EARLY:CLASS, separated by blanks; TYPE is MCOI::OperandType, TIED -1 for none, CLASS the
//                 register class in each hardware mode, separated by '/', or "-" for none

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/MC/MCInstrInfo.h"
#include "llvm/MC/MCRegisterInfo.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" void LLVMInitializeAMDGPUTargetInfo();
extern "C" void LLVMInitializeAMDGPUTargetMC();

using namespace llvm;

static const std::pair<MCID::Flag, const char *> Flags[] = {
    {MCID::PreISelOpcode, "generic"},
    {MCID::Variadic, "variadic"},
    {MCID::HasOptionalDef, "optional-definition"},
    {MCID::Pseudo, "pseudo"},
    {MCID::Meta, "meta"},
    {MCID::Return, "return"},
    {MCID::EHScopeReturn, "eh-scope-return"},
    {MCID::Call, "call"},
    {MCID::Barrier, "barrier"},
    {MCID::Terminator, "terminator"},
    {MCID::Branch, "branch"},
    {MCID::IndirectBranch, "indirect-branch"},
    {MCID::Compare, "compare"},
    {MCID::MoveImm, "move-immediate"},
    {MCID::MoveReg, "move-register"},
    {MCID::Bitcast, "bitcast"},
    {MCID::Select, "select"},
    {MCID::DelaySlot, "delay-slot"},
    {MCID::FoldableAsLoad, "foldable-as-load"},
    {MCID::MayLoad, "may-load"},
    {MCID::MayStore, "may-store"},
    {MCID::MayRaiseFPException, "may-raise-fp-exception"},
    {MCID::Predicable, "predicable"},
    {MCID::NotDuplicable, "not-duplicable"},
    {MCID::UnmodeledSideEffects, "side-effects"},
    {MCID::Commutable, "commutable"},
    {MCID::ConvertibleTo3Addr, "convertible-to-three-address"},
    {MCID::UsesCustomInserter, "custom-inserter"},
    {MCID::HasPostISelHook, "post-isel-hook"},
    {MCID::Rematerializable, "rematerialisable"},
    {MCID::CheapAsAMove, "as-cheap-as-move"},
    {MCID::ExtraSrcRegAllocReq, "extra-source-requirements"},
    {MCID::ExtraDefRegAllocReq, "extra-definition-requirements"},
    {MCID::RegSequence, "like-reg-sequence"},
    {MCID::ExtractSubreg, "like-extract-subreg"},
    {MCID::InsertSubreg, "like-insert-subreg"},
    {MCID::Convergent, "convergent"},
    {MCID::Add, "add"},
    {MCID::Trap, "trap"},
    {MCID::VariadicOpsAreDefs, "variadic-operands-are-definitions"},
    {MCID::Authenticated, "authenticated"},
};

static std::string flagNames(const MCInstrDesc &Desc, StringRef Name) {
  std::string Text;
  uint64_t Left = Desc.getFlags();
  for (const auto &[Bit, Word] : Flags) {
    if (!(Left >> Bit & 1))
      continue;
    Left &= ~(1ULL << Bit);
    Text += (Text.empty() ? "" : " ") + std::string(Word);
  }
  if (Left) {
    errs() << "flag without a name here: " << Name << " has 0x" << utohexstr(Left) << "\n";
    exit(1);
  }
  return Text;
}

static std::string registers(ArrayRef<MCPhysReg> Registers, const MCRegisterInfo &Info) {
  std::string Text;
  for (MCPhysReg Register : Registers)
    Text += (Text.empty() ? "" : " ") + StringRef(Info.getName(Register)).lower();
  return Text;
}

static std::string registerClass(const MCOperandInfo &Operand, unsigned Modes, const MCInstrInfo &Instructions,
                                 const MCRegisterInfo &Info) {
  if (Operand.RegClass < 0)
    return "-";
  std::string Text;
  for (unsigned Mode = 0; Mode < (Operand.isLookupRegClassByHwMode() ? Modes : 1); ++Mode) {
    int Class = Instructions.getOpRegClassID(Operand, Mode);
    // A mode without this class, accumulators where there are none: no register fits.
    std::string Name = Class < 0 ? "-" : StringRef(Info.getRegClassName(&Info.getRegClass(Class))).lower();
    Text += (Text.empty() ? "" : "/") + Name;
  }
  return Text;
}

int main() {
  LLVMInitializeAMDGPUTargetInfo();
  LLVMInitializeAMDGPUTargetMC();
  Triple AMDGPU("amdgcn-amd-amdhsa");
  std::string Error;
  const Target *Found = TargetRegistry::lookupTarget(AMDGPU, Error);
  if (!Found) {
    errs() << Error << "\n";
    return 1;
  }
  std::unique_ptr<MCInstrInfo> Instructions(Found->createMCInstrInfo());
  std::unique_ptr<MCRegisterInfo> Registers(Found->createMCRegInfo(AMDGPU));
  std::unique_ptr<MCSubtargetInfo> Any(Found->createMCSubtargetInfo(AMDGPU, "", ""));

  outs() << "llvm\t" << LLVM_VERSION_STRING << "\n";
  unsigned Modes = 1;
  for (const SubtargetSubTypeKV &Processor : Any->getAllProcessorDescriptions()) {
    // Both wave sizes are asked for, so that every mode is seen; the processor's own is printed.
    for (const char *Features : {"+wavefrontsize64,-wavefrontsize32", "+wavefrontsize32,-wavefrontsize64"}) {
      std::unique_ptr<MCSubtargetInfo> Other(Found->createMCSubtargetInfo(AMDGPU, Processor.Key, Features));
      Modes = std::max(Modes, Other->getHwMode(MCSubtargetInfo::HwMode_RegInfo) + 1);
    }
    std::unique_ptr<MCSubtargetInfo> Own(Found->createMCSubtargetInfo(AMDGPU, Processor.Key, ""));
    outs() << "processor\t" << Processor.Key << "\t" << Own->getHwMode(MCSubtargetInfo::HwMode_RegInfo) << "\n";
  }
  for (unsigned Opcode = 0; Opcode < Instructions->getNumOpcodes(); ++Opcode) {
    const MCInstrDesc &Desc = Instructions->get(Opcode);
    StringRef Name = Instructions->getName(Opcode);
    outs() << "opcode\t" << Name << "\t" << Desc.getNumDefs() << "\t" << flagNames(Desc, Name) << "\t"
           << utohexstr(Desc.TSFlags) << "\t" << registers(Desc.implicit_uses(), *Registers) << "\t"
           << registers(Desc.implicit_defs(), *Registers) << "\t";
    const char *Blank = "";
    for (unsigned Number = 0; Number < Desc.getNumOperands(); ++Number) {
      const MCOperandInfo &Operand = Desc.operands()[Number];
      if (Operand.isOptionalDef() || Operand.isPredicate()) {
        errs() << "optional definitions and predicates are not expected: " << Name << "\n";
        return 1;
      }
      outs() << Blank << unsigned(Operand.OperandType) << ":" << Desc.getOperandConstraint(Number, MCOI::TIED_TO) << ":"
             << (Desc.getOperandConstraint(Number, MCOI::EARLY_CLOBBER) >= 0) << ":"
             << registerClass(Operand, Modes, *Instructions, *Registers);
      Blank = " ";
    }
    outs() << "\n";
  }
  return 0;
}
