"""What a chemist calls the parts of a molecule: ring systems, functional groups, and what lies between them.

:func:`chemical_groups` divides a molecule so that every atom is in exactly one group, and sums over groups add up.
:data:`FRAGMENTS` gives RDKit's own fragment patterns, which overlap, names that people read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

from ...errors import MissingExtraError
from ...render.molecule.molecule_data import element_name
from .rdkit_signals import ctrl_c_kept

if TYPE_CHECKING:
    from rdkit.Chem import Mol

Atoms = frozenset[int]

MOST_RINGS = 10
"""Ring systems with more rings than this are not searched for a known part: the combinations would be too many."""

FRAGMENTS = {
    "C=O": "carbonyl",
    "C=O_noCOO": "carbonyl (not acid)",
    "Al_OH": "aliphatic hydroxyl",
    "Ar_OH": "aromatic hydroxyl",
    "Al_COO": "aliphatic carboxylic acid",
    "Ar_COO": "aromatic carboxylic acid",
    "COO": "carboxylic acid on carbon",
    "COO2": "carboxylic acid",
    "quatN": "quaternary nitrogen",
    "NH2": "NH₂",
    "NH1": "NH",
    "NH0": "nitrogen without hydrogen",
    "Ar_N": "aromatic nitrogen",
    "Ar_NH": "aromatic NH",
    "Imine": "imine",
    "hdrzine": "hydrazine",
    "hdrzone": "hydrazone",
    "N-O": "hydroxylamine",
    "priamide": "primary amide",
    "guanido": "guanidine",
    "Nhpyrrole": "pyrrole-like NH",
    "isocyan": "isocyanate",
    "isothiocyan": "isothiocyanate",
    "thiocyan": "thiocyanate",
    "alkyl_halide": "alkyl halide",
    "sulfide": "thioether",
    "SH": "thiol",
    "C=S": "thiocarbonyl",
    "sulfone": "sulphone",
    "sulfonamd": "sulphonamide",
    "prisulfonamd": "primary sulphonamide",
    "barbitur": "barbiturate",
    "term_acetylene": "terminal alkyne",
    "piperdine": "piperidine",
    "piperzine": "piperazine",
    "lactam": "beta-lactam",
    "unbrch_alkane": "unbranched alkane chain",
    "bicyclic": "ring fusion",
    "phos_acid": "phosphoric acid",
    "phos_ester": "phosphoric ester",
    "nitro_arom": "nitro on benzene",
    "nitro_arom_nonortho": "nitro on benzene, not ortho",
    "phenol_noOrthoHbond": "phenol without ortho hydrogen bond",
    "Al_OH_noTert": "aliphatic hydroxyl, not tertiary",
    "para_hydroxylation": "para-hydroxylation site",
    "allylic_oxid": "allylic oxidation site",
    "aryl_methyl": "aryl methyl",
    "Ndealkylation1": "N-dealkylation site",
    "Ndealkylation2": "N-dealkylation site in a ring",
    "alkyl_carbamate": "alkyl carbamate",
    "ketone_Topliss": "ketone (Topliss)",
    "ArN": "nitrogen group on an aromatic ring",
    "HOCCN": "beta-amino alcohol",
}
"""Readable names of those of RDKit's fragments whose own names are not; no two fragments share one."""

RINGS = """
benzene c1ccccc1|pyridine c1ccncc1|pyrimidine c1cncnc1|pyrazine c1cnccn1|pyridazine c1ccnnc1|1,3,5-triazine c1ncncn1
1,2,4-triazine c1cnncn1|pyrrole c1cc[nH]c1|furan c1ccoc1|thiophene c1ccsc1|selenophene c1cc[se]c1|imidazole c1c[nH]cn1
pyrazole c1cc[nH]n1|oxazole c1cocn1|isoxazole c1conc1|thiazole c1cscn1|isothiazole c1csnc1|1,2,3-triazole c1c[nH]nn1
1,2,3-triazole c1cn[nH]n1|1,2,4-triazole c1nc[nH]n1|tetrazole c1nnn[nH]1|tetrazole c1nn[nH]n1|1,3,4-oxadiazole c1nnco1
1,2,4-oxadiazole c1ncon1|1,2,5-oxadiazole c1conn1|1,2,5-oxadiazole c1cnon1|1,3,4-thiadiazole c1nncs1|1,2,4-thiadiazole c1ncsn1
1,2,3-thiadiazole c1csnn1|1,2,5-thiadiazole c1cnsn1|pyrylium c1cc[o+]cc1|thiopyrylium c1cc[s+]cc1|cyclopropane C1CC1
cyclobutane C1CCC1|cyclopentane C1CCCC1|cyclohexane C1CCCCC1|cycloheptane C1CCCCCC1|cyclooctane C1CCCCCCC1
cyclopentene C1=CCCC1|cyclohexene C1=CCCCC1|cyclohexadiene C1=CCCC=C1|cyclohexadiene C1=CCC=CC1|cyclopentadiene C1=CCC=C1
aziridine C1CN1|azetidine C1CNC1|pyrrolidine C1CCNC1|piperidine C1CCNCC1|azepane C1CCCNCC1|piperazine C1CNCCN1
1,4-diazepane C1CNCCNC1|epoxide C1CO1|oxetane C1COC1|tetrahydrofuran C1CCOC1|tetrahydropyran C1CCOCC1|1,3-dioxolane C1COCO1
1,4-dioxane C1COCCO1|1,3-dioxane C1COCOC1|morpholine C1COCCN1|thiomorpholine C1CSCCN1|thiolane C1CCSC1|thiane C1CCSCC1
thiirane C1CS1|1,3-dithiolane C1CSCS1|thiazolidine C1CSCN1|oxazolidine C1COCN1|imidazolidine C1CNCN1|pyrazolidine C1CNNC1
pyrroline C1C=CCN1|pyrroline C1CC=CN1|pyrroline C1CCC=N1|pyrazoline C1CC=NN1|imidazoline C1CN=CN1|oxazoline C1COC=N1
thiazoline C1CSC=N1|isoxazoline C1CC=NO1|dihydrothiazole C1=CSCN1|dihydrofuran C1CC=CO1|dihydrofuran C1C=CCO1
dihydropyran C1CC=COC1|dihydropyran C1C=CCOC1|pyran C1C=CC=CO1|pyran C1C=COC=C1|tetrahydropyridine C1CC=CNC1
tetrahydropyridine C1C=CCNC1|1,4-dihydropyridine C1C=CNC=C1|1,2-dihydropyridine C1C=CC=CN1|dihydropyrimidine C1C=CNCN1
pyridone O=c1cc[nH]cc1|pyridone O=c1cccc[nH]1|pyrimidinone O=c1cc[nH]cn1|pyrimidinone O=c1ccnc[nH]1
uracil O=c1cc[nH]c(=O)[nH]1|pyridazinone O=c1cccn[nH]1|pyrazinone O=c1cncc[nH]1|pyranone O=c1ccocc1|pyranone O=c1cccco1
cyclohexanone O=C1CCCCC1|cyclopentanone O=C1CCCC1|cyclohexenone O=C1C=CCCC1|cyclopentenone O=C1C=CCC1
cyclohexadienone O=C1C=CCC=C1|benzoquinone O=C1C=CC(=O)C=C1|benzoquinone O=C1C=CC=CC1=O|cyclohexane-1,3-dione O=C1CCCC(=O)C1
cyclohexenedione O=C1C=CC(=O)CC1|beta-lactam O=C1CCN1|pyrrolidinone O=C1CCCN1|piperidinone O=C1CCCCN1|piperidinone O=C1CCNCC1
caprolactam O=C1CCCCCN1|piperazinone O=C1CNCCN1|piperazinedione O=C1CNC(=O)CN1|morpholinone O=C1COCCN1
succinimide O=C1CCC(=O)N1|maleimide O=C1C=CC(=O)N1|glutarimide O=C1CCCC(=O)N1|hydantoin O=C1CNC(=O)N1
thiohydantoin O=C1CNC(=S)N1|rhodanine O=C1CSC(=S)N1|thiazolidinedione O=C1CSC(=O)N1|thiazolidinone O=C1CSCN1
oxazolidinone O=C1OCCN1|oxazolidinone O=C1COCN1|imidazolidinone O=C1NCCN1|pyrazolone O=C1CC=NN1|pyrazolone O=c1cc[nH][nH]1
barbiturate O=C1CC(=O)NC(=O)N1|thiobarbiturate O=C1CC(=O)NC(=S)N1|butyrolactone O=C1CCCO1|butenolide O=C1C=CCO1
valerolactone O=C1CCCCO1|maleic anhydride O=C1C=CC(=O)O1|succinic anhydride O=C1CCC(=O)O1|tetronic acid O=C1CC(=O)CO1
oxazolone O=C1CN=CO1|imidazolone O=C1CN=CN1|thiazolone O=C1CN=CS1|thiazolone O=C1CSC=N1|dihydropyrimidinone O=C1NCC=CN1
pyrrolinone O=C1C=CCN1|naphthalene c1ccc2ccccc2c1|quinoline c1ccc2ncccc2c1|isoquinoline c1ccc2cnccc2c1
quinazoline c1ccc2ncncc2c1|quinoxaline c1ccc2nccnc2c1|cinnoline c1ccc2nnccc2c1|phthalazine c1ccc2cnncc2c1
1,8-naphthyridine c1cnc2ncccc2c1|1,5-naphthyridine c1cnc2cccnc2c1|1,6-naphthyridine c1cnc2ccncc2c1|pteridine c1cnc2ncncc2n1
indole c1ccc2[nH]ccc2c1|isoindole c1ccc2c[nH]cc2c1|indolizine c1ccn2cccc2c1|indazole c1ccc2[nH]ncc2c1
benzimidazole c1ccc2[nH]cnc2c1|benzotriazole c1ccc2[nH]nnc2c1|benzotriazole c1ccc2n[nH]nc2c1|benzofuran c1ccc2occc2c1
benzothiophene c1ccc2sccc2c1|benzoxazole c1ccc2ocnc2c1|benzisoxazole c1ccc2oncc2c1|benzothiazole c1ccc2scnc2c1
benzisothiazole c1ccc2sncc2c1|benzothiadiazole c1ccc2nsnc2c1|benzothiadiazole c1ccc2snnc2c1|benzofurazan c1ccc2nonc2c1
purine c1ncc2nc[nH]c2n1|7-azaindole c1cnc2[nH]ccc2c1|pyrazolo[1,5-a]pyrimidine c1cnc2ccnn2c1
pyrazolo[3,4-d]pyrimidine c1ncc2cn[nH]c2n1|imidazo[1,2-a]pyridine c1ccn2ccnc2c1|triazolopyrimidine c1cnc2ncnn2c1
triazolopyridine c1ccn2cnnc2c1|triazolopyridazine c1cnn2cnnc2c1|imidazopyridine c1cnc2[nH]cnc2c1
thienopyrimidine c1ncc2ccsc2n1|thienopyridine c1cnc2sccc2c1|imidazothiazole c1cn2ccsc2n1|thiazolopyridine c1cnc2scnc2c1
pyrrolopyrimidine c1ncc2cc[nH]c2n1|furopyridine c1cnc2occc2c1|imidazopyridazine c1cnn2ccnc2c1
imidazo[1,2-a]pyrimidine c1cnc2nccn2c1|anthracene c1ccc2cc3ccccc3cc2c1|phenanthrene c1ccc2c(c1)ccc1ccccc12
acridine c1ccc2nc3ccccc3cc2c1|carbazole c1ccc2c(c1)[nH]c1ccccc12|dibenzofuran c1ccc2c(c1)oc1ccccc12
dibenzothiophene c1ccc2c(c1)sc1ccccc12|phenazine c1ccc2nc3ccccc3nc2c1|beta-carboline c1ccc2c(c1)[nH]c1cnccc12
pyrene c1cc2ccc3cccc4ccc(c1)c2c34|perylene c1cc2cccc3c4cccc5cccc(c(c1)c23)c45|fluorene c1ccc2c(c1)Cc1ccccc1-2
fluoranthene c1ccc2c(c1)-c1cccc3cccc-2c13|azulene c1ccc2cccc2cc1|biphenylene c1ccc2c(c1)-c1ccccc1-2|indane c1ccc2c(c1)CCC2
indene c1ccc2c(c1)C=CC2|tetralin c1ccc2c(c1)CCCC2|indoline c1ccc2c(c1)CCN2|isoindoline c1ccc2c(c1)CNC2
tetrahydroquinoline c1ccc2c(c1)CCCN2|tetrahydroisoquinoline c1ccc2c(c1)CCNC2|chroman c1ccc2c(c1)CCCO2
isochroman c1ccc2c(c1)CCOC2|chromene c1ccc2c(c1)C=CCO2|chromene c1ccc2c(c1)CC=CO2|dihydrobenzofuran c1ccc2c(c1)CCO2
phthalan c1ccc2c(c1)COC2|1,3-benzodioxole c1ccc2c(c1)OCO2|1,4-benzodioxane c1ccc2c(c1)OCCO2
1,5-benzodioxepine c1ccc2c(c1)OCCCO2|benzoxazine c1ccc2c(c1)NCCO2|benzothiazine c1ccc2c(c1)NCCS2|benzazepine c1ccc2c(c1)CCCCN2
benzazepine c1ccc2c(c1)CCNCC2|1,4-benzodiazepine c1ccc2c(c1)C=NCCN2|1,4-benzodiazepinone O=C1CN=Cc2ccccc2N1
1,5-benzodiazepine c1ccc2c(c1)NCCC=N2|dibenzazepine c1ccc2c(c1)C=Cc1ccccc1N2|dibenzazepine c1ccc2c(c1)CCc1ccccc1N2
dibenzosuberane c1ccc2c(c1)CCc1ccccc1C2|dibenzosuberene c1ccc2c(c1)C=Cc1ccccc1C2|phenothiazine c1ccc2c(c1)Nc1ccccc1S2
phenoxazine c1ccc2c(c1)Nc1ccccc1O2|phenoxathiin c1ccc2c(c1)Oc1ccccc1S2|dibenzodioxin c1ccc2c(c1)Oc1ccccc1O2
xanthene c1ccc2c(c1)Cc1ccccc1O2|thioxanthene c1ccc2c(c1)Cc1ccccc1S2|dihydroacridine c1ccc2c(c1)Cc1ccccc1N2
tetrahydrocarbazole c1ccc2c(c1)[nH]c1c2CCCC1|tetrahydro-beta-carboline c1ccc2c(c1)[nH]c1c2CCNC1
tetrahydrobenzothiophene c1cc2c(s1)CCCC2|tetrahydroindazole c1n[nH]c2c1CCCC2|tetrahydroacridine c1ccc2nc3c(cc2c1)CCCC3
tetrahydrothienopyridine c1cc2c(s1)CCNC2|cyclopentathiophene c1cc2c(s1)CCC2|quinolone O=c1cc[nH]c2ccccc12
quinolinone O=c1ccc2ccccc2[nH]1|isoquinolinone O=c1[nH]ccc2ccccc12|quinazolinone O=c1[nH]cnc2ccccc12
quinazolinone O=c1nc[nH]c2ccccc12|quinazolinedione O=c1[nH]c(=O)c2ccccc2[nH]1|phthalazinone O=c1[nH]ncc2ccccc12
quinoxalinone O=c1cnc2ccccc2[nH]1|coumarin O=c1ccc2ccccc2o1|chromone O=c1ccoc2ccccc12|isocoumarin O=c1occc2ccccc12
xanthone O=c1c2ccccc2oc2ccccc12|thioxanthone O=c1c2ccccc2sc2ccccc12|acridone O=c1c2ccccc2[nH]c2ccccc12
chromanone O=C1CCOc2ccccc12|dihydrocoumarin O=C1CCc2ccccc2O1|tetralone O=C1CCCc2ccccc12|indanone O=C1CCc2ccccc12
indanedione O=C1CC(=O)c2ccccc12|naphthoquinone O=C1C=CC(=O)c2ccccc12|naphthoquinone O=C1C=Cc2ccccc2C1=O
anthraquinone O=C1c2ccccc2C(=O)c2ccccc12|fluorenone O=C1c2ccccc2-c2ccccc12|anthrone O=C1c2ccccc2Cc2ccccc12
oxindole O=C1Cc2ccccc2N1|isatin O=C1Nc2ccccc2C1=O|isoindolinone O=C1NCc2ccccc12|phthalimide O=C1NC(=O)c2ccccc12
naphthalimide O=C1NC(=O)c2cccc3cccc1c23|phthalide O=C1OCc2ccccc12|phthalic anhydride O=C1OC(=O)c2ccccc12
benzofuranone O=C1COc2ccccc12|benzimidazolone O=c1[nH]c2ccccc2[nH]1|benzoxazolone O=c1[nH]c2ccccc2o1
benzothiazolone O=c1[nH]c2ccccc2s1|benzisothiazolone O=c1[nH]sc2ccccc12|saccharin O=C1NS(=O)(=O)c2ccccc12
benzoxazinone O=C1COc2ccccc2N1|benzothiazinone O=C1CSc2ccccc2N1|dihydroquinolinone O=C1CCc2ccccc2N1
dihydroisoquinolinone O=C1NCCc2ccccc12|dihydroquinazolinone O=C1NCNc2ccccc12|hypoxanthine O=c1[nH]cnc2nc[nH]c12
purinone O=c1[nH]cnc2[nH]cnc12|xanthine O=c1[nH]c(=O)c2nc[nH]c2[nH]1|xanthine O=c1[nH]c(=O)c2[nH]cnc2[nH]1
thienopyrimidinone O=c1[nH]cnc2sccc12|penicillin core O=C1CC2SCCN12|cephalosporin core O=C1CC2SCC=CN12|norbornane C1CC2CCC1C2
decalin C1CCC2CCCCC2C1|hydrindane C1CCC2CCCC2C1|adamantane C1C2CC3CC1CC(C2)C3|quinuclidine C1CN2CCC1CC2|tropane C1CC2CCC(C1)N2
bicyclo[2.2.2]octane C1CC2CCC1CC2|DABCO C1CN2CCN1CC2|norbornene C1CC2C=CC1C2|quinolizidine C1CCN2CCCCC2C1
indolizidine C1CCN2CCCC2C1|pyrrolizidine C1CC2CCCN2C1|pinane C1CC2CC(C1)C2|steroid C1CCC2C(C1)CCC1C3CCCC3CCC21
pyrroloquinazoline c1ccc2c(c1)N=C1CCCN1C2|tetrahydrothienopyrimidine c1ncc2c(n1)sc1c2CCCC1|glucal core C1C=COCC1
"""
"""Ring systems by name, as SMILES with the oxygens and sulphurs that are double-bonded to the ring."""

GROUPS = """
acylhydrazone [CX3;!R](=[OX1])[NX3][NX2]=[CX3;!R]
hydrazide [CX3;!R](=[OX1])[NX3][NX3]
carbamate [CX3;!R](=[OX1])([OX2;$(O[#6])])[#7]
carbonate [CX3;!R](=[OX1])([OX2])[OX2]
thiourea [CX3;!R](=[SX1])([#7])[#7]
urea [CX3;!R](=[OX1])([#7])[#7]
thiosemicarbazone [CX3;!R]=[NX2][NX3][CX3](=[SX1])[#7]
guanidine [CX3;!R](~[#7])(~[#7])~[#7]
imide [NX3;!R]([CX3](=[OX1]))[CX3](=[OX1])
anhydride [OX2;!R]([CX3](=[OX1]))[CX3](=[OX1])
hydroxamic acid [CX3;!R](=[OX1])[NX3][OX2H1]
carboxylic acid [CX3;!R](=[OX1])[OX2H1]
carboxylate [CX3;!R](=[OX1])[OX1-]
ester [CX3;!R](=[OX1])[OX2;$(O[#6])]
thioester [CX3;!R](=[OX1])[SX2]
amide [CX3;!R](=[OX1])[#7X3]
thioamide [CX3;!R](=[SX1])[#7]
acyl halide [CX3;!R](=[OX1])[F,Cl,Br,I]
aldehyde [CX3;H1,H2;!R]=[OX1]
ketone [CX3;!R;$(C([#6])[#6])]=[OX1]
carbonyl [CX3;!R]=[OX1]
thiocarbonyl [CX3;!R]=[SX1]
sulphonamide [SX4;!R](=[OX1])(=[OX1])[#7]
sulphate ester [SX4;!R](=[OX1])(=[OX1])([#8])[#8]
sulphonic acid [SX4;!R](=[OX1])(=[OX1])[OX2H1,OX1-]
sulphonate ester [SX4;!R](=[OX1])(=[OX1])[OX2]
sulphonyl halide [SX4;!R](=[OX1])(=[OX1])[F,Cl,Br,I]
sulphone [SX4;!R](=[OX1])=[OX1]
sulphoxide [SX3;!R]~[OX1]
phosphate [PX4;!R](~[OX1])(~[#8])(~[#8])~[#8]
phosphonate [PX4;!R](~[OX1])(~[#8])~[#8]
phosphine oxide [PX4;!R]=[OX1]
phosphorus group [#15;!R]
boronic acid [BX3;!R](O)O
nitrate ester [NX3;!R](~[OX1])(~[OX1])[OX2]
nitro group [NX3;!R](~[OX1])~[OX1]
nitrosamine [NX2;!R](=[OX1])[#7]
nitroso group [NX2;!R]=[OX1]
azide [NX2,NX2-;!R]~[NX2+]~[NX1]
diazo group [NX2+;!R]#[NX1]
isothiocyanate [NX2;!R]=[CX2]=[SX1]
isocyanate [NX2;!R]=[CX2]=[OX1]
thiocyanate [SX2;!R][CX2]#[NX1]
nitrile [CX2;!R]#[NX1]
isonitrile [NX2+;!R]#[CX1-]
azo group [NX2;!R]=[NX2]
oxime [CX3;!R]=[NX2][OX2]
hydrazone [CX3;!R]=[NX2][#7]
amidine [CX3;!R](=[#7])[#7]
imidate [CX3;!R](=[#7])[#8]
imine [CX3;!R]=[#7]
imine [NX2;!R]=[#6]
hydrazine [NX3;!R][#7X3]
hydroxylamine [NX3;!R][OX2]
trifluoromethoxy group [OX2;!R][CX4](F)(F)F
difluoromethoxy group [OX2;!R][CX4H1](F)F
trifluoromethyl group [CX4;!R](F)(F)F
difluoromethyl group [CX4H1;!R](F)F
trichloromethyl group [CX4;!R](Cl)(Cl)Cl
methoxy group [OX2;!R;$(O([#6])[#6])][CH3]
ethoxy group [OX2;!R;$(O([#6])[#6])][CH2][CH3]
peroxide [OX2;!R][OX2]
phenol OH [OX2H1,OX1-;!R;$(O-c)]
hydroxyl [OX2H1;!R]
alkoxide [OX1-;!R;$(O-[#6])]
N-oxide [OX1-;!R;$(O-[#7+])]
silyl group [Si;!R]
ether [OX2;!R;$(O([#6])[#6])]
methylthio group [SX2;!R;$(S([#6])[#6])][CH3]
disulphide [SX2;!R][SX2]
thiol [SX2H1,SX1-;!R]
thioether [SX2;!R;$(S([#6])[#6])]
dimethylamino group [NX3;!R;$(N[#6])]([CH3])[CH3]
diethylamino group [NX3;!R]([CH2][CH3])[CH2][CH3]
primary aromatic amine [NX3H2;!R;$(Na)]
primary amine [NX3H2;!R]
aromatic amine [NX3;!R;$(Na)]
secondary amine [NX3H1;!R]
tertiary amine [NX3;!R]
ammonium [NX4+;!R]
fluorine [F;!R;$(F-*)]
chlorine [Cl;!R;$(Cl-*)]
bromine [Br;!R;$(Br-*)]
iodine [I;!R;$(I-*)]
alkyne [CX2;!R]#[CX2]
alkene [CX3;!R]=[CX3;!R]
alkene [CX3;!R]=[#6]
tert-butyl group [CX4H0;!R]([CH3])([CH3])[CH3]
isopropyl group [CX4H1;!R]([CH3])[CH3]
"""
"""Functional groups by name, as SMARTS without the neighbours; an atom goes to the first that has it, rings before all."""

SIZES = ("three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

STEROID = 17
"""The atoms of the four rings of a steroid, which are named whatever double bonds they have."""

IONS = {"F": "fluoride", "Cl": "chloride", "Br": "bromide", "I": "iodide"}


def chemical_groups(mol: Mol) -> dict[str, list[Atoms]]:
    """Divide a molecule into groups that chemists have names for; every atom is in exactly one.

    Ring systems come first, each with the oxygens that are double-bonded to it; one without a name of its own is divided into
    known parts. Functional groups follow, then chains of carbon, and single atoms by their element.

    Returns:
        The atoms of each occurrence, by the name of the group.
    """
    found: dict[str, list[Atoms]] = {}
    taken: set[int] = set()
    for stage in (_rings, _functional, _chains, _single):
        for name, atoms in stage(mol, taken):
            found.setdefault(name, []).append(atoms)
            taken |= atoms
    return found


def ring_name(mol: Mol, atoms: Iterable[int]) -> str:
    """What a ring or a system of rings is called: by :data:`RINGS` where it is there, otherwise by its size and elements."""
    bare = frozenset(atoms)
    return _known(mol, bare) or _described(mol, bare)


def joined_rings(rings: Iterable[Iterable[int]]) -> Iterator[Atoms]:
    """The atoms of each ring system: rings that share atoms, joined."""
    joined: list[set[int]] = []
    for ring in map(set, rings):
        touching = [system for system in joined if system & ring]
        joined = [system for system in joined if not system & ring] + [ring.union(*touching)]
    yield from map(frozenset, joined)


def _rings(mol: Mol, taken: set[int]) -> Iterator[tuple[str, Atoms]]:
    """The ring systems with their names; one that has none as the known parts it consists of, and what is left of it."""
    rings = [frozenset(ring) for ring in mol.GetRingInfo().AtomRings()]
    seen = set(taken)
    for system in sorted(joined_rings(rings), key=sorted):
        for name, part in _divided(mol, [ring for ring in rings if ring <= system]):
            atoms = (part | _double_bonded(mol, part)) - seen
            seen |= atoms
            if atoms:
                yield name, atoms


def _divided(mol: Mol, rings: list[Atoms]) -> Iterator[tuple[str, Atoms]]:
    """The named parts of a ring system, those with most aromatic atoms first; rings of no known part come last, joined."""
    while rings:
        known = _best_part(mol, rings)
        if known is None:
            yield from ((_described(mol, system), system) for system in joined_rings(rings))
            return
        name, chosen = known
        yield name, frozenset().union(*chosen)
        rings = [ring for ring in rings if ring not in chosen]


def _best_part(mol: Mol, rings: list[Atoms]) -> tuple[str, tuple[Atoms, ...]] | None:
    """Rings that have a name together: the whole if it has one, otherwise those with the most aromatic atoms."""
    whole = frozenset().union(*rings)
    if len({*joined_rings(rings)}) == 1 and (name := _known(mol, whole)):
        return name, tuple(rings)
    best: tuple[tuple[int, int], str, tuple[Atoms, ...]] | None = None
    most = min(4, len(rings)) if len(rings) <= MOST_RINGS else 1
    for count in range(1, most + 1):
        for chosen in combinations(rings, count):
            part = frozenset().union(*chosen)
            if count > 1 and len(list(joined_rings(chosen))) > 1:
                continue
            worth = (sum(mol.GetAtomWithIdx(i).GetIsAromatic() for i in part), len(part))
            if (best is None or worth > best[0]) and (name := _known(mol, part)):
                best = worth, name, chosen
    return None if best is None else best[1:]


def _known(mol: Mol, atoms: Atoms) -> str:
    """The name of a ring system in :data:`RINGS`, with or without what is double-bonded to it; '' where it is not there."""
    table, skeletons = _ring_table()
    if len(atoms) == STEROID and (name := skeletons.get(_ring_key(mol, atoms, plain=True))):
        return name  # whatever is double-bonded in it
    oxo = _double_bonded(mol, atoms)
    if name := table.get(_ring_key(mol, atoms | oxo)):
        return _as_ring(mol, name, atoms)
    bare = table.get(_ring_key(mol, atoms))
    if bare or oxo:
        return "" if not bare else _as_ring(mol, f"oxo-{bare}" if oxo else bare, atoms)
    # A saturated ring on an aromatic one shares two atoms with it, which are not saturated.
    fused = [i for i in atoms if mol.GetAtomWithIdx(i).GetIsAromatic()]
    own = [mol.GetAtomWithIdx(i) for i in atoms if i not in fused]
    saturated = all(str(bond.GetBondType()) in ("SINGLE", "AROMATIC") for atom in own for bond in atom.GetBonds())
    if len(fused) == 2 and saturated:
        return _as_ring(mol, skeletons.get(_ring_key(mol, atoms, plain=True), ""), atoms)
    return ""


def _as_ring(mol: Mol, name: str, atoms: Atoms) -> str:
    """The name, with the word "ring" after that of a single one: a benzene ring, but an indole."""
    single = sum(frozenset(ring) <= atoms for ring in mol.GetRingInfo().AtomRings()) == 1
    return f"{name} ring" if name and single and not name.endswith(("core", ")")) else name


def _described(mol: Mol, atoms: Atoms) -> str:
    """A ring without a known name, by its size and what is in it other than carbon."""
    count = sum(frozenset(ring) <= atoms for ring in mol.GetRingInfo().AtomRings())
    if count > 1:
        return f"fused ring of {len(atoms)} atoms"
    symbols = sorted(mol.GetAtomWithIdx(i).GetSymbol() for i in atoms)
    others = [symbol for symbol in symbols if symbol != "C"]
    if len(atoms) - 3 >= len(SIZES):
        return f"macrocycle of {len(atoms)} atoms"
    size = f"{SIZES[len(atoms) - 3]}-membered ring"
    return f"{size} with {', '.join(others)}" if others else f"{size} of carbon"


def _double_bonded(mol: Mol, atoms: Atoms) -> Atoms:
    """The oxygens and sulphurs that only have a double bond to a ring."""
    found = set()
    for i in atoms:
        for bond in mol.GetAtomWithIdx(i).GetBonds():
            other = bond.GetOtherAtom(mol.GetAtomWithIdx(i))
            double = str(bond.GetBondType()) == "DOUBLE" and other.GetDegree() == 1
            if double and other.GetAtomicNum() in (8, 16) and other.GetIdx() not in atoms:
                found.add(other.GetIdx())
    return frozenset(found)


def _functional(mol: Mol, taken: set[int]) -> Iterator[tuple[str, Atoms]]:
    seen = set(taken)
    for name, pattern in _group_patterns():
        with ctrl_c_kept():
            matches = mol.GetSubstructMatches(pattern, maxMatches=100_000)
        for match in matches:
            if match[0] not in seen:
                atoms = frozenset(match) - seen
                seen |= atoms
                yield name, atoms


def _chains(mol: Mol, taken: set[int]) -> Iterator[tuple[str, Atoms]]:
    """Carbons that are in no ring and no functional group, joined where they are bonded."""
    left = {atom.GetIdx() for atom in mol.GetAtoms() if atom.GetAtomicNum() == 6} - taken
    while left:
        chain, edge = set(), [min(left)]
        while edge:
            i = edge.pop()
            if i in left:
                left.discard(i)
                chain.add(i)
                edge += [other.GetIdx() for other in mol.GetAtomWithIdx(i).GetNeighbors()]
        yield _chain_name(mol, chain), frozenset(chain)


def _chain_name(mol: Mol, chain: set[int]) -> str:
    if len(chain) > 1:
        ends = [i for i in chain if mol.GetAtomWithIdx(i).GetTotalNumHs() == 3]
        return "ethyl group" if len(chain) == 2 and len(ends) == 1 else "alkyl chain"
    hydrogens = mol.GetAtomWithIdx(min(chain)).GetTotalNumHs()
    return {4: "methane", 3: "methyl group", 2: "methylene", 1: "methine carbon"}.get(hydrogens, "quaternary carbon")


def _single(mol: Mol, taken: set[int]) -> Iterator[tuple[str, Atoms]]:
    for atom in mol.GetAtoms():
        if atom.GetIdx() not in taken:
            name = element_name(mol, atom.GetIdx())
            if atom.GetFormalCharge() and not atom.GetDegree():
                name = IONS.get(atom.GetSymbol(), f"{name} ion")
            yield name, frozenset([atom.GetIdx()])


def _ring_key(mol: Mol, atoms: Atoms, *, plain: bool = False) -> str:
    """A text that is the same for ring systems with the same elements, bonds and aromaticity, whatever is bonded to them.

    Args:
        mol: the molecule.
        atoms: of the ring system.
        plain: whether bonds and aromaticity are left out.
    """
    from rdkit import Chem

    copy = Chem.RWMol()
    places = {i: copy.AddAtom(_bare(mol, i, plain=plain)) for i in sorted(atoms)}
    for bond in mol.GetBonds():
        ends = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        if all(end in places for end in ends):
            copy.AddBond(places[ends[0]], places[ends[1]], Chem.BondType.SINGLE if plain else bond.GetBondType())
    return str(Chem.MolToSmiles(copy, kekuleSmiles=False, canonical=True))


def _bare(mol: Mol, i: int, *, plain: bool) -> Any:
    from rdkit import Chem

    atom = Chem.Atom(mol.GetAtomWithIdx(i).GetAtomicNum())
    atom.SetIsAromatic(not plain and mol.GetAtomWithIdx(i).GetIsAromatic())
    atom.SetNoImplicit(True)
    return atom


@cache
def _ring_table() -> tuple[dict[str, str], dict[str, str]]:
    """The names of ring systems by their keys, and those of saturated ones by their keys without bonds."""
    from rdkit import Chem

    table: dict[str, str] = {}
    skeletons: dict[str, str] = {}
    for entry in RINGS.strip().replace("\n", "|").split("|"):
        name, smiles = entry.rsplit(" ", 1)
        mol = Chem.MolFromSmiles(smiles)
        atoms = frozenset(range(mol.GetNumAtoms()))
        table.setdefault(_ring_key(mol, atoms), name)
        if not any(sign in smiles for sign in "c=n"):
            skeletons.setdefault(_ring_key(mol, atoms, plain=True), name)
    return table, skeletons


@cache
def _group_patterns() -> tuple[tuple[str, Mol], ...]:
    try:
        from rdkit import Chem
    except ImportError:
        raise MissingExtraError("rdkit", "molecules", "finding functional groups") from None
    entries = (entry.rsplit(" ", 1) for entry in GROUPS.strip().splitlines())
    return tuple((name, Chem.MolFromSmarts(smarts)) for name, smarts in entries)
